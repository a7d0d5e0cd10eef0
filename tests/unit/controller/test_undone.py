"""What a claim asks of its sandbox and somebody undoes is asked for again, later each time."""

from __future__ import annotations

import asyncio

import pytest
from tests.support.pools import TEMPLATE, Server, claim, merged, pool, waiting
from tests.support.sandboxes import living_pod

from holdfast.controller.desk import Desk
from holdfast.controller.undone import Undone
from holdfast.errors import ClusterRefusedError
from holdfast.sandbox.actions import Patch, Target

LABELS = {"labels": {"team": "red"}}


class Admission(Server):
    """Takes each change of a sandbox's pod labels back before it is kept."""

    def put(self, found):
        if found["kind"] == "Sandbox" and self.there:
            found = merged(found, {"spec": {"podTemplate": {"metadata": {"labels": {"team": None}}}}})
        return super().put(found)


class Rival(Server):
    """A second controller takes it back a moment later."""

    async def patch(self, target, patch):
        answer = await super().patch(target, patch)
        if target.kind == "Sandbox":
            asyncio.get_running_loop().call_later(0.002, self._take_back, answer)
        return answer

    def _take_back(self, found):
        self.tell(
            self.put(merged(found, {"spec": {"podTemplate": {"metadata": {"labels": {"team": None}}}}}))
        )


class Refusing(Server):
    """Refuses the change, with words."""

    async def patch(self, target, patch):
        if target.kind == "Sandbox":
            self.wrote.append(("patch", "Sandbox"))
            raise ClusterRefusedError("no red teams here")
        return await super().patch(target, patch)


def edited_before(server, seconds=1.0):
    """A claim that has its sandbox, and whose new label meets this server."""
    asked = claim("c")
    box = waiting("p-0", asked)
    box["spec"]["operatingMode"] = "Suspended"
    del box["status"]["podIPs"]
    asked["spec"]["additionalPodMetadata"] = LABELS
    asked["metadata"]["annotations"] = {"agents.x-k8s.io/sandbox-name": "p-0"}
    asked["status"] = {"sandbox": {"name": "p-0"}}

    async def scenario():
        server.desk = Desk(server)
        running = asyncio.create_task(server.desk.run())
        for each in (TEMPLATE, pool(0), box, asked):
            server.tell(server.put(each))
        await asyncio.sleep(seconds)
        running.cancel()

    asyncio.run(scenario())
    return server.wrote


@pytest.mark.parametrize("kind", [Admission, Rival])
def test_a_label_that_somebody_takes_back_each_time_makes_no_storm_of_writes(kind):
    wrote = edited_before(kind(told_early=False))
    assert 3 <= wrote.count(("patch", "Sandbox")) <= 8


def test_a_change_that_the_server_refuses_is_told_once_and_nothing_else_between():
    server = Refusing(told_early=False)
    wrote = edited_before(server, seconds=2.0)
    assert wrote.count(("patch", "Sandbox")) >= 2
    said = server.there["SandboxClaim", "c"]["status"]["conditions"]
    assert [(row["reason"], row["message"]) for row in said] == [("ReconcilerError", "no red teams here")]
    assert wrote.count(("status", "SandboxClaim")) == 1


async def until(holds):
    async with asyncio.timeout(20):
        while not holds():  # noqa: ASYNC110 (nothing tells of what a stand-in keeps)
            await asyncio.sleep(0.02)


def test_a_claims_time_ends_though_the_server_refuses_its_edit():
    """What its sandbox says goes on reaching it: the address of a new pod, and the end of the last one."""
    asked = claim("c")
    box = waiting("p-0", asked)
    lifecycle = {"ttlSecondsAfterFinished": 2, "shutdownPolicy": "Delete"}
    asked["spec"] |= {"additionalPodMetadata": LABELS, "lifecycle": lifecycle}
    asked["status"] = {"sandbox": {"name": "p-0", "podIPs": ["10.0.0.1"]}}
    server = Refusing(told_early=False)

    def says(kind):
        rows = server.there["SandboxClaim", "c"]["status"].get("conditions") or ()
        return next((row["reason"] for row in rows if row["type"] == kind), None)

    async def scenario():
        server.desk = Desk(server)
        running = asyncio.create_task(server.desk.run())
        for each in (TEMPLATE, pool(0), box, living_pod(box), asked):
            server.tell(server.put(each))
        await until(lambda: says("Ready") == "ReconcilerError")
        assert server.there["SandboxClaim", "c"]["status"]["sandbox"]["podIPs"] == ["10.0.0.9"]
        server.tell(server.put(living_pod(box, phase="Succeeded")))
        await until(lambda: says("Finished") == "PodSucceeded")
        assert says("Ready") == "ReconcilerError"
        await until(lambda: ("SandboxClaim", "c") not in server.there)
        running.cancel()

    asyncio.run(scenario())


def asking(patch, name="a", uid=None):
    target = Target(api_version="v1", kind="Sandbox", name=name, namespace="ns", uid=uid or f"uid-{name}")
    return Patch(target=target, patch=patch)


class Played:
    """Undone with a clock that is set by hand."""

    def __init__(self):
        self.now = 0.0
        self.undone = Undone(lambda: self.now)

    def pause(self, action):
        due, left = self.undone.due([action])
        assert (left is None) == (due == [action])
        return left or 0.0


def test_the_same_again_waits_longer_each_time_and_something_else_does_not():
    played, red = Played(), asking({"a": "red"})
    pauses = []
    for _ in range(12):
        pauses.append(played.pause(red))
        played.now += pauses[-1]
        played.undone.done([red])
    assert pauses[:4] == pytest.approx([0.0, 0.05, 0.1, 0.2])
    assert pauses[-1] == pytest.approx(10.0)
    assert played.pause(asking({"a": "blue"})) == 0.0
    assert played.pause(asking({"a": "red"}, name="b")) == 0.0


def test_what_held_for_long_is_asked_for_at_once():
    played, red = Played(), asking({"a": "red"})
    for _ in range(5):
        played.undone.done([red])
    played.now += 60.0
    assert played.pause(red) == 0.0
    played.undone.done([red])
    assert played.pause(red) == pytest.approx(0.05)


def test_what_comes_again_under_the_same_name_does_not_wait_for_what_was_undone_before():
    played, red = Played(), asking({"a": "red"})
    for _ in range(5):
        played.undone.done([red])
    again = asking({"a": "red"}, uid="uid-another")
    assert played.pause(again) == 0.0
    played.undone.done([again])
    assert played.pause(again) == pytest.approx(0.05)
