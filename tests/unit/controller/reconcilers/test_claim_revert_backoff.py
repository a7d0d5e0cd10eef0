"""Patches that another actor reverts are repeated with backoff."""

from __future__ import annotations

import asyncio

import pytest
from tests.support.fake_api_server import (
    TEMPLATE,
    FakeApiServer,
    apply_merge_patch,
    claim_manifest,
    pool_manifest,
    warm_sandbox,
)
from tests.support.sandbox_objects import running_pod
from tests.support.virtual_time import run_virtual, virtual_now

from holdfast.controller.controller import Controller
from holdfast.controller.reconcilers.claim import RevertBackoff
from holdfast.errors import ApiRequestRejectedError
from holdfast.sandbox import ActionTarget, Patch

LABELS = {"labels": {"sandbox.users.io/team": "red"}}


class Admission(FakeApiServer):
    """An admission webhook that removes the label before the object is stored."""

    def store(self, found):
        if found["kind"] == "Sandbox" and self.objects:
            found = apply_merge_patch(
                found, {"spec": {"podTemplate": {"metadata": {"labels": {"sandbox.users.io/team": None}}}}}
            )
        return super().store(found)


class Rival(FakeApiServer):
    """A second controller that removes the label after each patch."""

    async def patch(self, **request):
        answer = await super().patch(**request)
        if request["kind"] == "Sandbox" and "subresource" not in request:
            asyncio.get_running_loop().call_later(0.002, self._take_back, answer)
        return answer

    def _take_back(self, found):
        self.notify(
            self.store(
                apply_merge_patch(
                    found,
                    {"spec": {"podTemplate": {"metadata": {"labels": {"sandbox.users.io/team": None}}}}},
                )
            )
        )


class Refusing(FakeApiServer):
    """An API server that rejects the patch."""

    async def patch(self, **request):
        if request["kind"] == "Sandbox" and "subresource" not in request:
            self.requests.append(("patch", "Sandbox"))
            raise ApiRequestRejectedError("no red teams here")
        return await super().patch(**request)


def edit_claim(server, seconds=1.0):
    """Run a controller for a bound SandboxClaim with a new label; returns the requests."""
    asked = claim_manifest("c")
    box = warm_sandbox("p-0", asked)
    box["spec"]["operatingMode"] = "Suspended"
    del box["status"]["podIPs"]
    asked["spec"]["additionalPodMetadata"] = LABELS
    asked["metadata"]["annotations"] = {"agents.x-k8s.io/sandbox-name": "p-0"}
    asked["status"] = {"sandbox": {"name": "p-0"}}

    async def scenario():
        server.controller = Controller(server, clock=virtual_now)
        running = asyncio.create_task(server.controller.run())
        for each in (TEMPLATE, pool_manifest(0), box, asked):
            server.notify(server.store(each))
        await asyncio.sleep(seconds)
        running.cancel()

    run_virtual(scenario())
    return server.requests


@pytest.mark.parametrize("kind", [Admission, Rival])
def test_label_reverted_by_other_actor_causes_no_write_storm(kind):
    wrote = edit_claim(kind(notify_before_response=False))
    assert 3 <= wrote.count(("patch", "Sandbox")) <= 8


def test_rejected_patch_is_reported_once():
    server = Refusing(notify_before_response=False)
    wrote = edit_claim(server, seconds=2.0)
    assert wrote.count(("patch", "Sandbox")) >= 2
    said = server.objects["SandboxClaim", "c"]["status"]["conditions"]
    assert [(row["reason"], row["message"]) for row in said] == [
        ("ReconcilerError", "Error seen: no red teams here")
    ]
    assert wrote.count(("status", "SandboxClaim")) == 1


async def until(holds):
    async with asyncio.timeout(20):
        while not holds():  # noqa: ASYNC110 (the fake server sends no event for its state)
            await asyncio.sleep(0.02)


def test_claim_expires_although_its_edit_is_rejected():
    """Its sandbox's new address and final state still reach the SandboxClaim."""
    asked = claim_manifest("c")
    box = warm_sandbox("p-0", asked)
    lifecycle = {"ttlSecondsAfterFinished": 2, "shutdownPolicy": "Delete"}
    asked["spec"] |= {"additionalPodMetadata": LABELS, "lifecycle": lifecycle}
    asked["status"] = {"sandbox": {"name": "p-0", "podIPs": ["10.0.0.1"]}}
    server = Refusing(notify_before_response=False)

    def says(kind):
        rows = server.objects["SandboxClaim", "c"]["status"].get("conditions") or ()
        return next((row["reason"] for row in rows if row["type"] == kind), None)

    async def scenario():
        server.controller = Controller(server, clock=virtual_now)
        running = asyncio.create_task(server.controller.run())
        for each in (TEMPLATE, pool_manifest(0), box, running_pod(box), asked):
            server.notify(server.store(each))
        await until(lambda: says("Ready") == "ReconcilerError")
        assert server.objects["SandboxClaim", "c"]["status"]["sandbox"]["podIPs"] == ["10.0.0.9"]
        server.notify(server.store(running_pod(box, phase="Succeeded")))
        await until(lambda: says("Finished") == "PodSucceeded")
        assert says("Ready") == "ReconcilerError"
        await until(lambda: ("SandboxClaim", "c") not in server.objects)
        running.cancel()

    run_virtual(scenario())


def patch_action(patch, name="a", uid=None):
    target = ActionTarget(
        api_version="v1", kind="Sandbox", name=name, namespace="ns", uid=uid or f"uid-{name}"
    )
    return Patch(target=target, patch=patch)


class FakeClockBackoff:
    """`RevertBackoff` with a manual clock."""

    def __init__(self):
        self.now = 0.0
        self.backoff = RevertBackoff(lambda: self.now)

    def pause(self, action):
        due, left = self.backoff.split_due([action])
        assert (left is None) == (due == [action])
        return left or 0.0


def test_repeated_patch_backs_off_and_other_patch_does_not():
    backoff, red = FakeClockBackoff(), patch_action({"a": "red"})
    pauses = []
    for _ in range(12):
        pauses.append(backoff.pause(red))
        backoff.now += pauses[-1]
        backoff.backoff.record_applied([red])
    assert pauses[:4] == pytest.approx([0.0, 0.05, 0.1, 0.2])
    assert pauses[-1] == pytest.approx(10.0)
    assert backoff.pause(patch_action({"a": "blue"})) == 0.0
    assert backoff.pause(patch_action({"a": "red"}, name="b")) == 0.0


def test_long_lasting_patch_resets_backoff():
    backoff, red = FakeClockBackoff(), patch_action({"a": "red"})
    for _ in range(5):
        backoff.backoff.record_applied([red])
    backoff.now += 60.0
    assert backoff.pause(red) == 0.0
    backoff.backoff.record_applied([red])
    assert backoff.pause(red) == pytest.approx(0.05)


def test_recreated_object_does_not_inherit_backoff():
    backoff, red = FakeClockBackoff(), patch_action({"a": "red"})
    for _ in range(5):
        backoff.backoff.record_applied([red])
    again = patch_action({"a": "red"}, uid="uid-another")
    assert backoff.pause(again) == 0.0
    backoff.backoff.record_applied([again])
    assert backoff.pause(again) == pytest.approx(0.05)
