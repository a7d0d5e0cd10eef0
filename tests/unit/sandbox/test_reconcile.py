"""What is to be done for a sandbox, row by row of the published API."""

from __future__ import annotations

from datetime import timedelta

import pytest
from tests.support.sandbox_objects import (
    NOW,
    condition_of,
    explanation_of,
    failed_pod,
    message_of,
    reconcile,
    recreating_sandbox,
    running_pod,
    sandbox,
    timestamp,
    with_foreign_owner,
    without_owner,
    workspace_claim_template,
)

from holdfast.sandbox import manifests
from holdfast.sandbox.actions import Adopt, Delete, Patch
from holdfast.sandbox.manifests import name_hash, pvc_name, tracking_labels, tracking_selector


def test_name_hash_matches_published_algorithm():
    assert name_hash("") == "811c9dc5"
    assert name_hash("a") == "e40c292c"
    assert name_hash("foobar") == "bf9cf968"


def test_new_sandbox_gets_pvc_service_and_pod_in_one_reconcile():
    decision = reconcile(sandbox(volumeClaimTemplates=[workspace_claim_template()], service=True))
    assert [action.manifest["kind"] for action in decision.actions] == [
        "PersistentVolumeClaim", "Pod", "Service",
    ]  # fmt: skip
    claim, pod, service = (action.manifest for action in decision.actions)
    assert claim["metadata"]["name"] == pvc_name("workspace", "a") == "workspace-a"
    assert service["spec"] == {"clusterIP": "None", "selector": tracking_labels("a")}
    assert pod["spec"]["volumes"] == [
        {"name": "workspace", "persistentVolumeClaim": {"claimName": "workspace-a"}}
    ]
    assert all(part["metadata"]["ownerReferences"][0]["uid"] == "s-1" for part in (claim, service, pod))
    assert condition_of(decision, "Ready") == ("False", "DependenciesNotReady")
    assert condition_of(decision, "Suspended") == ("False", "NotSuspended")
    assert decision.status["selector"] == tracking_selector("a")


def test_new_pod_waits_while_its_pvcs_may_be_bound():
    box = sandbox(volumeClaimTemplates=[workspace_claim_template()], service=True)
    decision = reconcile(box, binding_seconds=0.2)
    assert [action.manifest["kind"] for action in decision.actions] == ["PersistentVolumeClaim", "Service"]
    assert (decision.status, decision.requeue_after) == (None, 0.2)


def test_pvc_replaces_pod_volume_of_same_name():
    box = sandbox(volumeClaimTemplates=[workspace_claim_template("data")])
    box["spec"]["podTemplate"]["spec"]["volumes"] = [
        {"name": "data", "emptyDir": {}},
        {"name": "tmp", "emptyDir": {}},
    ]
    names = [
        (volume["name"], "emptyDir" in volume) for volume in manifests.pod_manifest(box)["spec"]["volumes"]
    ]
    assert names == [("tmp", True), ("data", False)]


def test_ready_pod_makes_sandbox_ready():
    box = sandbox()
    decision = reconcile(box, running_pod(box))
    assert decision.actions == ()
    assert condition_of(decision, "Ready") == ("True", "DependenciesReady")
    assert condition_of(decision, "PodScheduled") == ("True", "PodScheduled")
    assert condition_of(decision, "Finished") is None
    assert (decision.status["podIPs"], decision.status["nodeName"]) == (["10.0.0.9"], "node")
    assert all(one["observedGeneration"] == 3 for one in decision.status["conditions"])


def test_missing_required_service_prevents_ready():
    box = sandbox(service=True)
    decision = reconcile(box, running_pod(box))
    assert condition_of(decision, "Ready") == ("False", "DependenciesNotReady")
    made = manifests.service_manifest(box)
    made["metadata"]["uid"] = "svc"
    decision = reconcile(box, running_pod(box), service=made)
    assert condition_of(decision, "Ready") == ("True", "DependenciesReady")
    assert decision.status["serviceFQDN"] == "a.ns.svc.cluster.local"


def test_service_false_deletes_own_service_and_unset_keeps_it():
    made = manifests.service_manifest(sandbox())
    made["metadata"]["uid"] = "svc"
    off = reconcile(sandbox(service=False), running_pod(sandbox()), service=made)
    assert [type(action) for action in off.actions] == [Delete]
    assert reconcile(sandbox(), running_pod(sandbox()), service=made).actions == ()
    assert (
        reconcile(sandbox(service=False), running_pod(sandbox()), service=with_foreign_owner(made)).actions
        == ()
    )


def test_reason_for_unready_pod_is_reported():
    box = sandbox()
    waiting = {"waiting": {"reason": "ErrImageNeverPull", "message": "app:1 is not there"}}
    pod = running_pod(box, phase="Pending", containerStatuses=[{"name": "main", "state": waiting}])
    explained = explanation_of(reconcile(box, pod))
    assert explained == ("ErrImageNeverPull", "container main: ErrImageNeverPull: app:1 is not there")


def test_unscheduled_pod_is_mirrored():
    box = sandbox()
    blocked = [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "no room"}]
    assert condition_of(reconcile(box, running_pod(box, phase="Pending", conditions=blocked)), "PodScheduled") == (  # noqa: E501
        "False", "Unschedulable",
    )  # fmt: skip
    assert condition_of(reconcile(box, running_pod(box, phase="Pending", conditions=[])), "PodScheduled") == (
        "Unknown", "PodSchedulingUnknown",
    )  # fmt: skip


def test_suspend_deletes_pod_keeps_pvc_and_reports_progress():
    box = sandbox(operatingMode="Suspended", volumeClaimTemplates=[workspace_claim_template()])
    claim = manifests.pvc_manifests(box)[0]
    claim["metadata"]["uid"] = "c"
    claims = {"workspace-a": claim}
    pod = running_pod(box)
    going = reconcile(box, pod, pvcs=claims)
    assert [(type(action), action.target.uid) for action in going.actions] == [(Delete, "p-1")]
    assert condition_of(going, "Suspended") == ("False", "PodTerminating")
    pod["metadata"]["deletionTimestamp"] = timestamp(NOW)
    assert reconcile(box, pod, pvcs=claims).actions == ()
    gone = reconcile(box, pvcs=claims)
    assert gone.actions == ()
    assert condition_of(gone, "Suspended") == ("True", "PodTerminated")
    assert condition_of(gone, "Ready") == ("False", "SandboxSuspended")
    assert "podIPs" not in gone.status
    assert "nodeName" not in gone.status


def test_suspend_leaves_foreign_pod_alone():
    box = sandbox(operatingMode="Suspended")
    decision = reconcile(box, with_foreign_owner(running_pod(box)))
    assert decision.actions == ()
    assert condition_of(decision, "Suspended") == ("False", "PodNotOwned")


def test_foreign_pod_with_sandbox_name_is_reported_and_left_alone():
    box = sandbox()
    decision = reconcile(box, with_foreign_owner(running_pod(box)))
    assert decision.actions == ()
    assert condition_of(decision, "Ready") == ("False", "ReconcilerError")
    assert message_of(decision) == 'Error seen: pod "a" is owned by Job/other (UID: x), not by sandbox "a"'


@pytest.mark.parametrize("label", [tracking_labels("a"), {"agents.x-k8s.io/adoptable": "true"}])
def test_unowned_pod_is_adopted_only_with_label(label):
    box = sandbox()
    pod = without_owner(running_pod(box))
    pod["metadata"]["labels"] = label
    (action,) = reconcile(box, pod).actions
    assert isinstance(action, Adopt)
    assert action.patch["metadata"]["ownerReferences"][0]["uid"] == "s-1"
    pod["metadata"]["labels"] = {}
    decision = reconcile(box, pod)
    assert decision.actions == ()
    assert condition_of(decision, "Ready") == ("False", "ReconcilerError")


def test_foreign_pvc_prevents_pod_creation():
    box = sandbox(volumeClaimTemplates=[workspace_claim_template()])
    claim = with_foreign_owner(manifests.pvc_manifests(box)[0])
    decision = reconcile(box, pvcs={"workspace-a": claim})
    assert decision.actions == ()
    assert condition_of(decision, "Ready") == ("False", "ReconcilerError")


def test_two_owned_pods_stop_reconciliation():
    box = sandbox()
    other = running_pod(box, uid="p-2")
    other["metadata"]["name"] = "a-2"
    decision = reconcile(box, running_pod(box), other)
    assert decision.actions == ()
    assert condition_of(decision, "Ready") == ("False", "MultiplePods")
    assert condition_of(decision, "Suspended") == ("False", "NotSuspended")
    suspended = sandbox(operatingMode="Suspended")
    assert condition_of(reconcile(suspended, running_pod(box), other), "Suspended") == (
        "Unknown", "PodStateUnknown",
    )  # fmt: skip


def test_succeeded_pod_finishes_sandbox():
    box = sandbox()
    decision = reconcile(box, running_pod(box, phase="Succeeded"))
    assert decision.actions == ()
    assert condition_of(decision, "Ready") == ("False", "PodSucceeded")
    assert condition_of(decision, "Finished") == ("True", "PodSucceeded")


def test_failed_pod_is_replaced_with_growing_backoff():
    box = recreating_sandbox()
    first = reconcile(box, failed_pod(box))
    assert first.actions == ()
    # A client that treats PodFailed as final must not give up on a sandbox that gets another pod.
    assert condition_of(first, "Ready") == ("False", "DependenciesNotReady")
    assert condition_of(first, "Finished") is None
    assert explanation_of(first) == ("PodFailed", "container main exited with code 7 (Error)")
    assert first.requeue_after == 1.0
    later = reconcile(box, failed_pod(box), now=NOW + timedelta(seconds=1))
    count, delete = later.actions
    assert isinstance(count, Patch)
    assert count.patch == {"metadata": {"annotations": {"holdfast.dev/failures": "1"}}}
    assert isinstance(delete, Delete)
    box["metadata"]["annotations"]["holdfast.dev/failures"] = "4"
    assert reconcile(box, failed_pod(box)).requeue_after == 16.0
    box["metadata"]["annotations"]["holdfast.dev/failures"] = "99"
    assert reconcile(box, failed_pod(box)).requeue_after == 300.0


@pytest.mark.parametrize(
    "told",
    [
        {"conditions": [], "containerStatuses": []},  # the kubelet did not let it in
        {
            "conditions": [
                {"type": "DisruptionTarget", "status": "True", "lastTransitionTime": timestamp(NOW)}
            ]
        },
        {
            "containerStatuses": [{"name": "main", "state": {"waiting": {"reason": "PodInitializing"}}}],
            "initContainerStatuses": [
                {"name": "seed", "state": {"terminated": {"exitCode": 1, "finishedAt": timestamp(NOW)}}}
            ],
        },
    ],
)
def test_pod_failed_before_start_is_replaced_with_backoff(told):
    box = recreating_sandbox()
    pod = running_pod(box, phase="Failed", **told)
    pod["metadata"]["creationTimestamp"] = timestamp(
        NOW if told.get("conditions") == [] else NOW - timedelta(hours=1)
    )
    for failures, pause in (("0", 1.0), ("4", 16.0), ("99", 300.0)):
        box["metadata"]["annotations"]["holdfast.dev/failures"] = failures
        early = reconcile(box, pod)
        assert (early.actions, early.requeue_after) == ((), pause)
        assert len(reconcile(box, pod, now=NOW + timedelta(seconds=pause)).actions) == 2


def test_long_running_pod_resets_backoff():
    box = recreating_sandbox()
    box["metadata"]["annotations"]["holdfast.dev/failures"] = "8"
    pod = failed_pod(box, started=NOW - timedelta(hours=1))
    assert reconcile(box, pod).requeue_after == 1.0


@pytest.mark.parametrize("annotations", [{}, {"holdfast.dev/failed-pods": "Keep"}])
def test_failed_pod_is_kept_unless_recreation_is_requested(annotations):
    box = sandbox()
    box["metadata"]["annotations"] = annotations
    decision = reconcile(box, failed_pod(box), now=NOW + timedelta(hours=1))
    assert decision.actions == ()
    assert decision.requeue_after is None
    assert condition_of(decision, "Ready") == ("False", "PodFailed")
    assert condition_of(decision, "Finished") == ("True", "PodFailed")


def test_expiry_is_reported_before_deletion_and_keeps_pvcs():
    box = sandbox(shutdownTime=timestamp(NOW), volumeClaimTemplates=[workspace_claim_template()])
    told = reconcile(box, running_pod(box))
    assert (told.actions, told.requeue_after) == ((), 0.0)
    assert condition_of(told, "Ready") == ("False", "SandboxExpired")
    box["status"] = told.status
    done = reconcile(box, running_pod(box))
    assert [(type(action), action.target.kind) for action in done.actions] == [(Delete, "Pod")]
    box["spec"]["shutdownPolicy"] = "Delete"
    assert [action.target.kind for action in reconcile(box).actions] == ["Sandbox"]


def test_suspended_sandbox_reports_expiry():
    box = sandbox(shutdownTime=timestamp(NOW), operatingMode="Suspended")
    assert condition_of(reconcile(box, running_pod(box)), "Suspended") == ("False", "PodTerminating")
    for _ in range(2):
        told = reconcile(box)
        assert condition_of(told, "Suspended") == ("True", "PodTerminated")
        box["status"] = told.status
    assert condition_of(told, "Ready") == ("False", "SandboxExpired")


def test_future_shutdown_time_sets_requeue_after():
    assert reconcile(sandbox(shutdownTime=timestamp(NOW + timedelta(seconds=90)))).requeue_after == 90.0
    soon = sandbox(shutdownTime=timestamp(NOW + timedelta(seconds=1)))
    assert reconcile(soon, running_pod(soon)).requeue_after == 2.0


def test_deleted_sandbox_is_left_to_garbage_collection():
    box = sandbox()
    box["metadata"]["deletionTimestamp"] = timestamp(NOW)
    decision = reconcile(box)
    assert (decision.actions, decision.status) == ((), None)


def test_pod_metadata_follows_template_and_spec_does_not():
    box = sandbox()
    box["spec"]["podTemplate"]["metadata"] = {"labels": {"team": "red", "old": "x"}}
    pod = running_pod(box)
    pod["metadata"]["labels"]["added-by"] = "somebody"
    box["spec"]["podTemplate"]["metadata"] = {"labels": {"team": "blue"}, "annotations": {"why": "so"}}
    box["spec"]["podTemplate"]["spec"]["containers"][0]["image"] = "app:2"
    (patch,) = reconcile(box, pod).actions
    assert patch.patch["metadata"]["labels"] == {"team": "blue", "old": None}
    assert patch.patch["metadata"]["annotations"]["why"] == "so"
    assert set(patch.patch) == {"metadata"}


def test_unchanged_condition_keeps_timestamp_and_foreign_conditions_stay():
    box = sandbox()
    box["status"] = {
        "conditions": [
            {
                "type": "Ready",
                "status": "True",
                "reason": "Old",
                "lastTransitionTime": "2025-01-01T00:00:00Z",
            },
            {"type": "Theirs", "status": "True", "lastTransitionTime": "2025-01-01T00:00:00Z"},
            {"type": "Finished", "status": "True", "lastTransitionTime": "2025-01-01T00:00:00Z"},
        ]
    }
    conditions = {one["type"]: one for one in reconcile(box, running_pod(box)).status["conditions"]}
    assert conditions["Ready"]["lastTransitionTime"] == "2025-01-01T00:00:00Z"
    assert "Theirs" in conditions
    assert "Finished" not in conditions
