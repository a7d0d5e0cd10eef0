"""A SandboxClaim adopts a warm sandbox with few writes, whether events or responses arrive first."""

from __future__ import annotations

import asyncio

import pytest
from tests.support.fake_api_server import TEMPLATE, FakeApiServer, claim_manifest, pool_manifest, warm_sandbox
from tests.support.sandbox_objects import running_pod
from tests.support.virtual_time import run_virtual, virtual_now

from holdfast.controller.controller import Controller

POOL = "agents.x-k8s.io/warm-pool-sandbox"
NAME = "agents.x-k8s.io/sandbox-name"
EARLY, LATE = True, False
"""whether the watch event of a write arrives before its response"""


def adopt(*claims, sandboxes=2, early=LATE, before_patch=None):
    """Create SandboxClaims on a full pool; returns the server after all writes."""

    async def scenario():
        server = FakeApiServer(notify_before_response=early)
        server.controller = controller = Controller(server, clock=virtual_now)
        full = pool_manifest(sandboxes)
        boxes = [warm_sandbox(f"p-{n}", full) for n in range(sandboxes)]
        pods = [running_pod(box, uid=f"pod-{n}") for n, box in enumerate(boxes)]
        for found in (TEMPLATE, full, *boxes, *pods):
            controller.cache.put(server.store(found))
        if before_patch is not None:
            server.before_patch = lambda target: before_patch(server, target)
        running = asyncio.create_task(controller.run())
        for each in claims:
            server.notify(server.store(each))
        wrote = -1
        while wrote != len(server.requests):
            wrote = len(server.requests)
            await asyncio.sleep(0.3)
        running.cancel()
        return server

    return run_virtual(scenario())


def ready(server, name):
    found = server.objects["SandboxClaim", name]
    [row] = found["status"]["conditions"]
    return row["status"], found["status"]["sandbox"]["name"]


def note(server, name):
    return server.objects["SandboxClaim", name]["metadata"]["annotations"]


@pytest.mark.parametrize("early", [EARLY, LATE])
def test_adoption_is_recorded_then_written_then_reported(early):
    server = adopt(claim_manifest("c"), early=early)
    writes = [("patch", "SandboxClaim"), ("patch", "Sandbox"), ("status", "SandboxClaim")]
    assert server.requests[:3] == writes
    assert server.requests.count(("patch", "SandboxClaim")) == 2
    assert ready(server, "c") == ("True", "p-0")
    assert server.requests.count(("status", "SandboxClaim")) == 1
    assert "p-0" in note(server, "c").values()


@pytest.mark.parametrize("early", [EARLY, LATE])
def test_pool_is_refilled_after_claim_is_ready(early):
    wrote = adopt(claim_manifest("c"), early=early).requests
    assert wrote.count(("create", "Sandbox")) == 1
    assert wrote.index(("create", "Sandbox")) > wrote.index(("status", "SandboxClaim"))


@pytest.mark.parametrize("early", [EARLY, LATE])
def test_filled_pool_writes_status_once(early):
    """The new sandbox is in the cache when the status is computed."""
    server = adopt(claim_manifest("c"), early=early)
    assert server.requests.count(("status", "SandboxWarmPool")) == 1
    assert server.objects["SandboxWarmPool", "p"]["status"]["replicas"] == 2


def test_concurrent_claims_adopt_different_sandboxes():
    server = adopt(claim_manifest("c"), claim_manifest("d"), claim_manifest("e"), sandboxes=3)
    assert {ready(server, name)[1] for name in "cde"} == {"p-0", "p-1", "p-2"}
    assert server.requests.count(("patch", "Sandbox")) == 3
    assert server.requests.count(("status", "SandboxClaim")) == 3


def test_deleted_candidate_is_replaced_by_next():
    def lost(server, target):
        if target.name == "p-0":
            server.objects.pop(("Sandbox", "p-0"), None)

    server = adopt(claim_manifest("c"), before_patch=lost)
    assert ready(server, "c") == ("True", "p-1")
    assert "p-1" in note(server, "c").values()


def test_changed_candidate_is_adopted_on_retry():
    """A failed write releases the reservation."""
    changed = []

    def touched(server, target):
        if target.kind == "Sandbox" and not changed:
            changed.append(target.name)
            server.notify(server.store(server.objects["Sandbox", target.name]))

    server = adopt(claim_manifest("c"), sandboxes=1, before_patch=touched)
    assert changed == ["p-0"]
    assert ready(server, "c") == ("True", "p-0")


def assign_other(found):
    found["metadata"].setdefault("annotations", {})[NAME] = "p-1"


def recreate(found):
    found["metadata"]["uid"] = "uid-successor"


def give_away(found):
    found["metadata"]["ownerReferences"][0] |= {"kind": "SandboxClaim", "name": "other", "uid": "uid-other"}


def drop_label(found):
    del found["metadata"]["labels"][POOL]


def touch(found):
    found["metadata"].setdefault("annotations", {})["note"] = "x"


@pytest.mark.parametrize(
    ("kind", "change", "detail"),
    [
        ("SandboxClaim", assign_other, "claim c already assigned sandbox p-1"),
        ("SandboxClaim", recreate, "claim c was deleted and recreated during adoption"),
        ("Sandbox", None, "sandbox p-0 deleted before adoption completed"),
        ("Sandbox", give_away, "sandbox p-0 is no longer pool-owned and not controlled by claim c"),
        ("Sandbox", drop_label, f"sandbox p-0 is no longer adoptable by claim c: it has no label {POOL}"),
        ("Sandbox", touch, "completing adoption of p-0 for claim c (conflicting concurrent write)"),
        ("SandboxClaim", touch, None),
    ],
    ids=["assigned", "recreated", "deleted", "given-away", "not-adoptable", "touched", "edited"],
)
def test_lost_race_is_reported_with_its_cause(kind, change, detail):
    """Another client changes one of the two objects right before the controller writes it."""
    messages, changed = [], []

    def interfere(server, target):
        rows = (server.objects["SandboxClaim", "c"].get("status") or {}).get("conditions") or ()
        messages.extend(row["message"] for row in rows if row["reason"] == "AdoptionConflict")
        if target.kind != kind or changed:
            return
        changed.append(target.name)
        found = server.objects.pop((kind, target.name))
        if change is not None:
            change(found)
            notified = server.store(found)
            asyncio.get_running_loop().call_later(0.2, server.notify, notified)

    server = adopt(claim_manifest("c"), before_patch=interfere)
    expected = f"adoption write conflict: {detail}; the next pass retries from a converged view"
    assert dict.fromkeys(messages) == dict.fromkeys([expected] if detail else [])
    assert ready(server, "c")[0] == "True"
    (owner,) = server.objects["Sandbox", ready(server, "c")[1]]["metadata"]["ownerReferences"]
    assert owner["uid"] == server.objects["SandboxClaim", "c"]["metadata"]["uid"]
