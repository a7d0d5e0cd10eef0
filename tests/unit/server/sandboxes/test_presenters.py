"""Phases of sandboxes from their conditions, including the states between two reconciliations."""

from __future__ import annotations

import pytest
from tests.support.sandbox_objects import (
    NOW,
    failed_pod,
    reconcile,
    recreating_sandbox,
    running_pod,
    sandbox,
    timestamp,
    workspace_claim_template,
)

from holdfast.api import Phase, SandboxRequest
from holdfast.sandbox import from_request
from holdfast.sandbox.manifests import tracking_labels
from holdfast.sandbox.status import is_being_deleted
from holdfast.server.sandboxes import presenters


def seen(box, *pods, **more):
    """Return the view of a sandbox with the status of the controller."""
    decision = reconcile(box, *pods, **more)
    return {**box, "status": decision.status}


def phase(box):
    return presenters.present_sandbox(box).phase


def suspended(**spec):
    return sandbox(operatingMode="Suspended", **spec)


def leaving(found):
    found["metadata"]["deletionTimestamp"] = timestamp(NOW)
    assert is_being_deleted(found)
    return found


def test_new_sandbox_is_pending():
    shown = presenters.present_sandbox(sandbox())
    assert (shown.phase, shown.message) == (Phase.PENDING, "the controller has not seen the sandbox yet")


def test_ready_pod_gives_ready_with_addresses():
    box = sandbox()
    shown = presenters.present_sandbox(seen(box, running_pod(box)))
    assert (shown.phase, shown.pod, shown.pod_ip, shown.node) == (Phase.READY, "a", "10.0.0.9", "node")
    assert shown.image == "app:1"


def test_unstartable_container_gives_its_reason():
    box = sandbox()
    waiting = {"waiting": {"reason": "ErrImagePull", "message": "not found"}}
    pod = running_pod(
        box, phase="Pending", conditions=[], containerStatuses=[{"name": "main", "state": waiting}]
    )
    shown = presenters.present_sandbox(seen(box, pod))
    assert (shown.phase, shown.reason) == (Phase.PENDING, "ErrImagePull")
    assert "not found" in shown.message


def test_unscheduled_pod_gives_scheduler_reason():
    box = sandbox()
    blocked = [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "no room"}]
    shown = presenters.present_sandbox(seen(box, running_pod(box, phase="Pending", conditions=blocked)))
    assert (shown.phase, shown.reason, shown.message) == (Phase.PENDING, "Unschedulable", "no room")


def test_finished_phases():
    box = sandbox()
    for failing in (box, recreating_sandbox()):
        assert phase(seen(failing, failed_pod(failing))) == Phase.FAILED
    assert phase(seen(box, running_pod(box, phase="Succeeded"))) == Phase.FINISHED
    assert phase(seen(sandbox(shutdownTime=timestamp(NOW)))) == Phase.EXPIRED
    assert phase(seen(suspended(shutdownTime=timestamp(NOW)))) == Phase.EXPIRED


def test_claim_ends_with_its_sandbox():
    claim = {"spec": {"lifecycle": {"shutdownTime": timestamp(NOW)}}}
    assert presenters.present_sandbox(seen(sandbox()), sandbox_claim=claim).shutdown_time == timestamp(NOW)
    assert presenters.present_sandbox(seen(sandbox()), sandbox_claim={"spec": {}}).shutdown_time is None
    assert presenters.present_sandbox(seen(sandbox(shutdownTime=timestamp(NOW)))).shutdown_time == timestamp(
        NOW
    )


def test_failed_pod_reports_whether_it_is_final():
    box = recreating_sandbox()
    assert presenters.present_sandbox(seen(box, failed_pod(box))).failed_pods == "Recreate"
    box["metadata"]["annotations"] = {"holdfast.dev/failed-pods": "Keep"}
    assert presenters.present_sandbox(seen(box, failed_pod(box))).failed_pods == "Keep"


def test_suspended_only_after_pod_is_gone():
    box = suspended()
    ending = presenters.present_sandbox(seen(box, leaving(running_pod(box))))
    assert (ending.phase, ending.reason) == (Phase.PENDING, "PodTerminating")
    assert phase(seen(box)) == Phase.SUSPENDED


@pytest.mark.parametrize("before", [sandbox(), suspended()])
def test_conditions_of_older_generation_are_ignored(before):
    """Directly after suspend or resume, neither the old Ready nor the old Suspended condition applies."""
    box = seen(before, *([running_pod(before)] if "operatingMode" not in before["spec"] else []))
    assert phase(box) in (Phase.READY, Phase.SUSPENDED)
    box["metadata"] = {**box["metadata"], "generation": 4}
    assert phase(box) == Phase.PENDING


def test_resumed_sandbox_is_pending_while_old_pod_terminates():
    box = sandbox()
    shown = presenters.present_sandbox(seen(box, leaving(running_pod(box))))
    assert (shown.phase, shown.reason) == (Phase.PENDING, "PodTerminating")


def test_previous_pod_is_awaited():
    box = sandbox()
    pod = leaving(running_pod(box))
    pod["metadata"]["ownerReferences"][0]["uid"] = "s-0"
    shown = presenters.present_sandbox(seen(box, pod))
    assert (shown.phase, shown.reason) == (Phase.PENDING, "PreviousObjectTerminating")


def test_explanation_of_older_generation_is_ignored():
    box = sandbox()
    waiting = {"waiting": {"reason": "ErrImagePull", "message": "not found"}}
    box = seen(box, running_pod(box, phase="Pending", containerStatuses=[{"name": "m", "state": waiting}]))
    for row in box["status"]["conditions"]:
        row["observedGeneration"] += row["type"] != "holdfast.dev/Explanation"
    shown = presenters.present_sandbox(box)
    assert (shown.reason, shown.message) == ("DependenciesNotReady", "Pod exists with phase: Pending")


def test_name_conflict_is_reported():
    box = sandbox()
    pod = running_pod(box)
    del pod["metadata"]["ownerReferences"]
    pod["metadata"]["labels"] = {}
    shown = presenters.present_sandbox(seen(box, pod))
    assert (shown.phase, shown.reason) == (Phase.PENDING, "ReconcilerError")
    assert "cannot adopt unowned pod" in shown.message


def test_terminating_sandbox():
    assert phase(leaving(sandbox())) == Phase.DELETING


def test_workspace_and_its_pvc():
    box = sandbox(volumeClaimTemplates=[workspace_claim_template()])
    missing = presenters.present_sandbox(box).workspace
    assert (missing.pvc, missing.phase, missing.kept) == ("workspace-a", "Missing", False)
    claim = {
        "metadata": {"ownerReferences": [{"uid": "s-1"}]},
        "spec": {"storageClassName": "local-path"},
        "status": {"phase": "Bound", "capacity": {"storage": "2Gi"}},
    }
    shown = presenters.present_sandbox(box, claim)
    assert (shown.workspace.phase, shown.workspace.capacity, shown.workspace.kept) == ("Bound", "2Gi", False)
    assert (shown.workspace.size_enforced, shown.notes) == (False, [])
    claim["metadata"]["ownerReferences"] = []
    claim["spec"]["storageClassName"] = "ceph"
    other = presenters.present_sandbox(box, claim).workspace
    assert (other.kept, other.size_enforced) == (True, True)


def test_false_foreign_condition_is_a_note():
    box = seen(sandbox())
    box["status"]["conditions"].append(
        {"type": "example.com/Scanned", "status": "False", "message": "the image was not scanned"}
    )
    assert presenters.present_sandbox(box).notes == ["the image was not scanned"]


def test_unenforced_policy_is_a_note():
    box = sandbox()
    around = {"metadata": {"name": "closed"}, "spec": {"podSelector": {"matchLabels": tracking_labels("a")}}}
    (note,) = presenters.present_sandbox(seen(box, running_pod(box), unenforced_policies=(around,))).notes
    assert "network policy closed exists" in note
    assert "does not enforce network policies" in note
    assert presenters.present_sandbox(seen(box, running_pod(box))).notes == []


def test_sandbox_without_workspace_has_a_note_when_it_is_suspended():
    assert presenters.present_sandbox(suspended()).notes == [presenters.NO_WORKSPACE_NOTE]
    assert presenters.present_sandbox(sandbox()).notes == []
    box = suspended(volumeClaimTemplates=[workspace_claim_template()])
    assert presenters.present_sandbox(box).notes == []


def test_view_has_resources_command_and_idle_time():
    request = SandboxRequest(
        name="a", image="app:1", cpu="500m", memory="1Gi", command=["echo", "$(A)", "$HOME"], args=["$$"],
        idle_suspend_after=600,
    )  # fmt: skip
    box = from_request.sandbox_manifest(request, namespace="ns", endpoint=None)
    box["metadata"]["annotations"]["holdfast.dev/last-used"] = "2026-01-01T00:00:00.000+00:00"
    shown = presenters.present_sandbox(box)
    assert (shown.cpu, shown.memory, shown.image) == ("500m", "1Gi", "app:1")
    assert (shown.command, shown.args) == (["echo", "$(A)", "$HOME"], ["$$"])
    assert (shown.idle_suspend_after, shown.last_used) == (600, "2026-01-01T00:00:00.000+00:00")
    other = presenters.present_sandbox(sandbox())
    assert (other.cpu, other.command, other.idle_suspend_after, other.last_used) == (None, None, None, None)


def test_claimed_sandbox_has_claim_name():
    box = sandbox()
    owner = {
        "apiVersion": "extensions.agents.x-k8s.io/v1beta1",
        "kind": "SandboxClaim",
        "name": "mine",
        "uid": "c",
        "controller": True,
    }
    box["metadata"] = {**box["metadata"], "ownerReferences": [owner]}
    shown = presenters.present_sandbox(box)
    assert (shown.name, shown.sandbox_claim, presenters.sandbox_claim_name(box)) == ("mine", "mine", "mine")
