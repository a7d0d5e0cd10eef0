"""Phases out of conditions: each row of the published API, and the moments between two of them."""

from __future__ import annotations

import pytest
from tests.support.sandboxes import NOW, failed_pod, living_pod, look, sandbox, text, workspace

from holdfast.sandbox.names import tracking
from holdfast.sandbox.status import is_leaving
from holdfast.sandbox.wire import Phase
from holdfast.server import views


def seen(box, *pods, **more):
    """A sandbox with the status that the controller would give it."""
    decision = look(box, *pods, **more)
    return {**box, "status": decision.status}


def phase(box):
    return views.view(box).phase


def suspended(**spec):
    return sandbox(operatingMode="Suspended", **spec)


def leaving(found):
    found["metadata"]["deletionTimestamp"] = text(NOW)
    assert is_leaving(found)
    return found


def test_a_new_one_is_pending():
    shown = views.view(sandbox())
    assert (shown.phase, shown.message) == (Phase.PENDING, "nobody has looked at the sandbox yet")


def test_one_whose_pod_is_ready_is_ready_with_its_addresses():
    box = sandbox()
    shown = views.view(seen(box, living_pod(box)))
    assert (shown.phase, shown.pod, shown.pod_ip, shown.node) == (Phase.READY, "a", "10.0.0.9", "node")
    assert shown.image == "app:1"


def test_a_container_that_cannot_start_gives_its_own_reason():
    box = sandbox()
    waiting = {"waiting": {"reason": "ErrImagePull", "message": "not found"}}
    pod = living_pod(
        box, phase="Pending", conditions=[], containerStatuses=[{"name": "main", "state": waiting}]
    )
    shown = views.view(seen(box, pod))
    assert (shown.phase, shown.reason) == (Phase.PENDING, "ErrImagePull")
    assert "not found" in shown.message


def test_a_pod_that_has_no_place_gives_the_schedulers_reason():
    box = sandbox()
    blocked = [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "no room"}]
    shown = views.view(seen(box, living_pod(box, phase="Pending", conditions=blocked)))
    assert (shown.phase, shown.reason, shown.message) == (Phase.PENDING, "Unschedulable", "no room")


def test_ends():
    box = sandbox()
    assert phase(seen(box, failed_pod(box))) == Phase.FAILED
    assert phase(seen(box, living_pod(box, phase="Succeeded"))) == Phase.FINISHED
    assert phase(seen(sandbox(shutdownTime=text(NOW)))) == Phase.EXPIRED
    assert phase(seen(suspended(shutdownTime=text(NOW)))) == Phase.EXPIRED


def test_the_end_of_a_claim_is_that_of_its_sandbox():
    claim = {"spec": {"lifecycle": {"shutdownTime": text(NOW)}}}
    assert views.view(seen(sandbox()), owner=claim).shutdown_time == text(NOW)
    assert views.view(seen(sandbox()), owner={"spec": {}}).shutdown_time is None
    assert views.view(seen(sandbox(shutdownTime=text(NOW)))).shutdown_time == text(NOW)


def test_whether_a_failed_pod_is_the_end_is_said():
    box = sandbox()
    assert views.view(seen(box, failed_pod(box))).failed_pods == "Recreate"
    box["metadata"]["annotations"] = {"holdfast.dev/failed-pods": "Keep"}
    assert views.view(seen(box, failed_pod(box))).failed_pods == "Keep"


def test_suspended_only_when_the_pod_is_gone():
    box = suspended()
    ending = views.view(seen(box, leaving(living_pod(box))))
    assert (ending.phase, ending.reason) == (Phase.PENDING, "PodTerminating")
    assert phase(seen(box)) == Phase.SUSPENDED


@pytest.mark.parametrize("before", [sandbox(), suspended()])
def test_what_was_said_of_an_older_wish_does_not_count(before):
    """Right after suspend or resume: neither the old Ready nor the old Suspended is true any more."""
    box = seen(before, *([living_pod(before)] if "operatingMode" not in before["spec"] else []))
    assert phase(box) in (Phase.READY, Phase.SUSPENDED)
    box["metadata"] = {**box["metadata"], "generation": 4}
    assert phase(box) == Phase.PENDING


def test_a_name_that_is_taken_says_so():
    box = sandbox()
    pod = living_pod(box)
    del pod["metadata"]["ownerReferences"]
    pod["metadata"]["labels"] = {}
    shown = views.view(seen(box, pod))
    assert (shown.phase, shown.reason) == (Phase.PENDING, "ReconcilerError")
    assert "belongs to nobody" in shown.message


def test_one_that_is_being_deleted():
    assert phase(leaving(sandbox())) == Phase.DELETING


def test_the_workspace_and_its_claim():
    box = sandbox(volumeClaimTemplates=[workspace()])
    missing = views.view(box).workspace
    assert (missing.claim, missing.phase, missing.kept) == ("workspace-a", "Missing", False)
    claim = {
        "metadata": {"ownerReferences": [{"uid": "s-1"}]},
        "spec": {"storageClassName": "local-path"},
        "status": {"phase": "Bound", "capacity": {"storage": "2Gi"}},
    }
    shown = views.view(box, claim)
    assert (shown.workspace.phase, shown.workspace.capacity, shown.workspace.kept) == ("Bound", "2Gi", False)
    assert views.SIZE_NOTE in shown.notes
    claim["metadata"]["ownerReferences"] = []
    assert views.view(box, claim).workspace.kept


def test_a_condition_of_others_that_does_not_hold_is_a_note():
    box = seen(sandbox())
    box["status"]["conditions"].append(
        {"type": "example.com/Scanned", "status": "False", "message": "the image was not scanned"}
    )
    assert views.view(box).notes == ["the image was not scanned"]


def test_a_policy_that_the_network_does_not_keep_to_is_a_note():
    box = sandbox()
    around = {"metadata": {"name": "closed"}, "spec": {"podSelector": {"matchLabels": tracking("a")}}}
    (note,) = views.view(seen(box, living_pod(box), policies=(around,))).notes
    assert "network policy closed is there" in note
    assert "does not enforce it" in note
    assert views.view(seen(box, living_pod(box))).notes == []


def test_a_claimed_one_has_the_name_of_its_claim():
    box = sandbox()
    owner = {
        "apiVersion": "extensions.agents.x-k8s.io/v1beta1",
        "kind": "SandboxClaim",
        "name": "mine",
        "uid": "c",
        "controller": True,
    }
    box["metadata"] = {**box["metadata"], "ownerReferences": [owner]}
    shown = views.view(box)
    assert (shown.name, shown.claim, views.claim_of(box)) == ("mine", "mine", "mine")
