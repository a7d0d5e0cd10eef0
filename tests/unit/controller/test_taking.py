"""A claim takes a waiting sandbox in two writes, whoever tells of them first; what others do comes after."""

from __future__ import annotations

import asyncio

import pytest
from tests.support.pools import TEMPLATE, Server, claim, pool, waiting
from tests.support.sandboxes import living_pod

from holdfast.controller.desk import Desk

EARLY, LATE = True, False
"""Whether the watch tells of a write before the write's own answer comes."""


def claimed(*claims, sandboxes=2, told_early=LATE, before_patch=None):
    """What is there and what was written when these claims come to a pool that is full."""

    async def scenario():
        server = Server(told_early=told_early)
        server.desk = desk = Desk(server)
        full = pool(sandboxes)
        boxes = [waiting(f"p-{n}", full) for n in range(sandboxes)]
        pods = [living_pod(box, uid=f"pod-{n}") for n, box in enumerate(boxes)]
        for found in (TEMPLATE, full, *boxes, *pods):
            desk.cache.put(server.put(found))
        if before_patch is not None:
            server.before_patch = lambda target: before_patch(server, target)
        running = asyncio.create_task(desk.run())
        for each in claims:
            server.tell(server.put(each))
        wrote = -1
        while wrote != len(server.wrote):
            wrote = len(server.wrote)
            await asyncio.sleep(0.3)
        running.cancel()
        return server

    return asyncio.run(scenario())


def ready(server, name):
    found = server.there["SandboxClaim", name]
    [row] = found["status"]["conditions"]
    return row["status"], found["status"]["sandbox"]["name"]


def note(server, name):
    return server.there["SandboxClaim", name]["metadata"]["annotations"]


@pytest.mark.parametrize("told_early", [EARLY, LATE])
def test_two_writes_and_the_claim_is_ready(told_early):
    server = claimed(claim("c"), told_early=told_early)
    assert server.wrote[:2] == [("patch", "Sandbox"), ("status", "SandboxClaim")]
    assert ready(server, "c") == ("True", "p-0")
    assert server.wrote.count(("status", "SandboxClaim")) == 1
    assert "p-0" in note(server, "c").values()


@pytest.mark.parametrize("told_early", [EARLY, LATE])
def test_the_pool_makes_another_one_after_the_claim_was_told(told_early):
    wrote = claimed(claim("c"), told_early=told_early).wrote
    assert wrote.count(("create", "Sandbox")) == 1
    assert wrote.index(("create", "Sandbox")) > wrote.index(("status", "SandboxClaim"))


@pytest.mark.parametrize("told_early", [EARLY, LATE])
def test_a_pool_that_was_filled_is_told_of_once(told_early):
    """Its new sandbox is known when it was made, and no earlier number is written."""
    server = claimed(claim("c"), told_early=told_early)
    assert server.wrote.count(("status", "SandboxWarmPool")) == 1
    assert server.there["SandboxWarmPool", "p"]["status"]["replicas"] == 2


def test_claims_at_the_same_time_take_different_sandboxes_and_none_in_vain():
    server = claimed(claim("c"), claim("d"), claim("e"), sandboxes=3)
    assert {ready(server, name)[1] for name in "cde"} == {"p-0", "p-1", "p-2"}
    assert server.wrote.count(("patch", "Sandbox")) == 3
    assert server.wrote.count(("status", "SandboxClaim")) == 3


def test_a_sandbox_that_goes_while_it_is_taken_is_followed_by_the_next():
    def lost(server, target):
        if target.name == "p-0":
            server.there.pop(("Sandbox", "p-0"), None)

    server = claimed(claim("c"), before_patch=lost)
    assert ready(server, "c") == ("True", "p-1")
    assert "p-1" in note(server, "c").values()


def test_a_sandbox_that_changes_while_it_is_taken_can_be_taken_again():
    """Nothing stays reserved after a write that failed."""
    changed = []

    def touched(server, target):
        if target.kind == "Sandbox" and not changed:
            changed.append(target.name)
            server.tell(server.put(server.there["Sandbox", target.name]))

    server = claimed(claim("c"), sandboxes=1, before_patch=touched)
    assert changed == ["p-0"]
    assert ready(server, "c") == ("True", "p-0")
