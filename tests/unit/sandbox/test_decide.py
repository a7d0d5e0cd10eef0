"""What is to be done for a sandbox, row by row of the published API."""

from __future__ import annotations

from datetime import timedelta

import pytest
from tests.support.sandboxes import (
    NOW,
    failed_pod,
    foreign,
    living_pod,
    look,
    said,
    sandbox,
    text,
    unowned,
    workspace,
)

from holdfast.sandbox import parts
from holdfast.sandbox.actions import Adopt, Delete, Patch
from holdfast.sandbox.names import claim_name, name_hash, selector, tracking


def test_the_name_hash_is_the_published_one():
    assert name_hash("") == "811c9dc5"
    assert name_hash("a") == "e40c292c"
    assert name_hash("foobar") == "bf9cf968"


def test_a_new_sandbox_gets_claim_service_and_pod_in_one_look():
    decision = look(sandbox(volumeClaimTemplates=[workspace()], service=True))
    assert [action.manifest["kind"] for action in decision.actions] == [
        "PersistentVolumeClaim", "Service", "Pod",
    ]  # fmt: skip
    claim, service, pod = (action.manifest for action in decision.actions)
    assert claim["metadata"]["name"] == claim_name("workspace", "a") == "workspace-a"
    assert service["spec"] == {"clusterIP": "None", "selector": tracking("a")}
    assert pod["spec"]["volumes"] == [
        {"name": "workspace", "persistentVolumeClaim": {"claimName": "workspace-a"}}
    ]
    assert all(part["metadata"]["ownerReferences"][0]["uid"] == "s-1" for part in (claim, service, pod))
    assert said(decision, "Ready") == ("False", "DependenciesNotReady")
    assert said(decision, "Suspended") == ("False", "NotSuspended")
    assert decision.status["selector"] == selector("a")


def test_a_claim_takes_the_place_of_the_pods_volume_of_that_name():
    box = sandbox(volumeClaimTemplates=[workspace("data")])
    box["spec"]["podTemplate"]["spec"]["volumes"] = [
        {"name": "data", "emptyDir": {}},
        {"name": "tmp", "emptyDir": {}},
    ]
    names = [(volume["name"], "emptyDir" in volume) for volume in parts.pod(box)["spec"]["volumes"]]
    assert names == [("tmp", True), ("data", False)]


def test_a_ready_pod_makes_a_ready_sandbox():
    box = sandbox()
    decision = look(box, living_pod(box))
    assert decision.actions == ()
    assert said(decision, "Ready") == ("True", "DependenciesReady")
    assert said(decision, "PodScheduled") == ("True", "PodScheduled")
    assert said(decision, "Finished") is None
    assert (decision.status["podIPs"], decision.status["nodeName"]) == (["10.0.0.9"], "node")
    assert all(one["observedGeneration"] == 3 for one in decision.status["conditions"])


def test_a_required_service_that_is_not_there_yet_keeps_it_from_being_ready():
    box = sandbox(service=True)
    decision = look(box, living_pod(box))
    assert said(decision, "Ready") == ("False", "DependenciesNotReady")
    made = parts.service(box)
    made["metadata"]["uid"] = "svc"
    decision = look(box, living_pod(box), service=made)
    assert said(decision, "Ready") == ("True", "DependenciesReady")
    assert decision.status["serviceFQDN"] == "a.ns.svc.cluster.local"


def test_service_false_removes_ours_and_unset_keeps_it():
    made = parts.service(sandbox())
    made["metadata"]["uid"] = "svc"
    off = look(sandbox(service=False), living_pod(sandbox()), service=made)
    assert [type(action) for action in off.actions] == [Delete]
    assert look(sandbox(), living_pod(sandbox()), service=made).actions == ()
    assert look(sandbox(service=False), living_pod(sandbox()), service=foreign(made)).actions == ()


def test_what_keeps_a_pod_from_being_ready_is_said():
    box = sandbox()
    waiting = {"waiting": {"reason": "ErrImageNeverPull", "message": "app:1 is not there"}}
    pod = living_pod(box, phase="Pending", containerStatuses=[{"name": "main", "state": waiting}])
    (ready,) = [one for one in look(box, pod).status["conditions"] if one["type"] == "Ready"]
    assert ready["message"] == "container main: ErrImageNeverPull: app:1 is not there"


def test_an_unscheduled_pod_is_mirrored():
    box = sandbox()
    blocked = [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "no room"}]
    assert said(look(box, living_pod(box, phase="Pending", conditions=blocked)), "PodScheduled") == (
        "False", "Unschedulable",
    )  # fmt: skip
    assert said(look(box, living_pod(box, phase="Pending", conditions=[])), "PodScheduled") == (
        "Unknown", "PodSchedulingUnknown",
    )  # fmt: skip


def test_suspending_deletes_the_pod_keeps_the_claim_and_says_how_far_it_is():
    box = sandbox(operatingMode="Suspended", volumeClaimTemplates=[workspace()])
    claim = parts.claims(box)[0]
    claim["metadata"]["uid"] = "c"
    claims = {"workspace-a": claim}
    pod = living_pod(box)
    going = look(box, pod, claims=claims)
    assert [(type(action), action.target.uid) for action in going.actions] == [(Delete, "p-1")]
    assert said(going, "Suspended") == ("False", "PodTerminating")
    pod["metadata"]["deletionTimestamp"] = text(NOW)
    assert look(box, pod, claims=claims).actions == ()
    gone = look(box, claims=claims)
    assert gone.actions == ()
    assert said(gone, "Suspended") == ("True", "PodTerminated")
    assert said(gone, "Ready") == ("False", "SandboxSuspended")
    assert "podIPs" not in gone.status
    assert "nodeName" not in gone.status


def test_suspending_leaves_a_foreign_pod_alone():
    box = sandbox(operatingMode="Suspended")
    decision = look(box, foreign(living_pod(box)))
    assert decision.actions == ()
    assert said(decision, "Suspended") == ("False", "PodNotOwned")


def test_a_foreign_pod_of_its_name_is_told_and_left_alone():
    box = sandbox()
    decision = look(box, foreign(living_pod(box)))
    assert decision.actions == ()
    assert said(decision, "Ready") == ("False", "ReconcilerError")
    (ready,) = [one for one in decision.status["conditions"] if one["type"] == "Ready"]
    assert "Job other" in ready["message"]


@pytest.mark.parametrize("label", [tracking("a"), {"agents.x-k8s.io/adoptable": "true"}])
def test_an_unowned_pod_is_taken_over_only_where_a_label_allows_it(label):
    box = sandbox()
    pod = unowned(living_pod(box))
    pod["metadata"]["labels"] = label
    (action,) = look(box, pod).actions
    assert isinstance(action, Adopt)
    assert action.patch["metadata"]["ownerReferences"][0]["uid"] == "s-1"
    pod["metadata"]["labels"] = {}
    decision = look(box, pod)
    assert decision.actions == ()
    assert said(decision, "Ready") == ("False", "ReconcilerError")


def test_a_foreign_claim_stops_the_pod_from_being_made():
    box = sandbox(volumeClaimTemplates=[workspace()])
    claim = foreign(parts.claims(box)[0])
    decision = look(box, claims={"workspace-a": claim})
    assert decision.actions == ()
    assert said(decision, "Ready") == ("False", "ReconcilerError")


def test_two_pods_of_one_sandbox_stop_everything():
    box = sandbox()
    other = living_pod(box, uid="p-2")
    other["metadata"]["name"] = "a-2"
    decision = look(box, living_pod(box), other)
    assert decision.actions == ()
    assert said(decision, "Ready") == ("False", "MultiplePods")
    assert said(decision, "Suspended") == ("Unknown", "PodStateUnknown")


def test_a_pod_that_succeeded_stays_and_the_sandbox_is_finished():
    box = sandbox()
    decision = look(box, living_pod(box, phase="Succeeded"))
    assert decision.actions == ()
    assert said(decision, "Ready") == ("False", "PodSucceeded")
    assert said(decision, "Finished") == ("True", "PodSucceeded")


def test_a_failed_pod_is_replaced_after_a_pause_that_grows():
    box = sandbox()
    first = look(box, failed_pod(box))
    assert first.actions == ()
    assert said(first, "Finished") == ("True", "PodFailed")
    assert first.again_in == 1.0
    later = look(box, failed_pod(box), now=NOW + timedelta(seconds=1))
    count, delete = later.actions
    assert isinstance(count, Patch)
    assert count.patch == {"metadata": {"annotations": {"holdfast.dev/failures": "1"}}}
    assert isinstance(delete, Delete)
    box["metadata"]["annotations"] = {"holdfast.dev/failures": "4"}
    assert look(box, failed_pod(box)).again_in == 16.0
    box["metadata"]["annotations"] = {"holdfast.dev/failures": "99"}
    assert look(box, failed_pod(box)).again_in == 300.0


@pytest.mark.parametrize(
    "told",
    [
        {"conditions": [], "containerStatuses": []},  # the kubelet did not let it in
        {"conditions": [{"type": "DisruptionTarget", "status": "True", "lastTransitionTime": text(NOW)}]},
        {
            "containerStatuses": [{"name": "main", "state": {"waiting": {"reason": "PodInitializing"}}}],
            "initContainerStatuses": [
                {"name": "seed", "state": {"terminated": {"exitCode": 1, "finishedAt": text(NOW)}}}
            ],
        },
    ],
)
def test_a_pod_that_failed_before_its_containers_ran_waits_its_pause_too(told):
    box = sandbox()
    pod = living_pod(box, phase="Failed", **told)
    pod["metadata"]["creationTimestamp"] = text(
        NOW if told.get("conditions") == [] else NOW - timedelta(hours=1)
    )
    for failures, pause in (("0", 1.0), ("4", 16.0), ("99", 300.0)):
        box["metadata"]["annotations"] = {"holdfast.dev/failures": failures}
        early = look(box, pod)
        assert (early.actions, early.again_in) == ((), pause)
        assert len(look(box, pod, now=NOW + timedelta(seconds=pause)).actions) == 2


def test_a_pod_that_ran_well_for_long_starts_the_count_anew():
    box = sandbox()
    box["metadata"]["annotations"] = {"holdfast.dev/failures": "8"}
    pod = failed_pod(box, started=NOW - timedelta(hours=1))
    assert look(box, pod).again_in == 1.0


def test_a_failed_pod_is_kept_where_that_is_wanted():
    box = sandbox()
    box["metadata"]["annotations"] = {"holdfast.dev/failed-pods": "Keep"}
    decision = look(box, failed_pod(box), now=NOW + timedelta(hours=1))
    assert decision.actions == ()
    assert decision.again_in is None
    assert said(decision, "Ready") == ("False", "PodFailed")


def test_expiry_says_so_first_then_takes_away_and_keeps_claims():
    box = sandbox(shutdownTime=text(NOW), volumeClaimTemplates=[workspace()])
    told = look(box, living_pod(box))
    assert (told.actions, told.again_in) == ((), 0.0)
    assert said(told, "Ready") == ("False", "SandboxExpired")
    box["status"] = told.status
    done = look(box, living_pod(box))
    assert [(type(action), action.target.kind) for action in done.actions] == [(Delete, "Pod")]
    box["spec"]["shutdownPolicy"] = "Delete"
    assert [action.target.kind for action in look(box).actions] == ["Sandbox"]


def test_a_sandbox_that_was_suspended_when_its_time_ended_still_says_so():
    box = sandbox(shutdownTime=text(NOW), operatingMode="Suspended")
    for _ in range(2):
        told = look(box)
        assert said(told, "Suspended") == ("True", "PodTerminated")
        assert said(look(box, living_pod(box)), "Suspended") == ("False", "PodTerminating")
        box["status"] = told.status
    assert said(told, "Ready") == ("False", "SandboxExpired")


def test_a_shutdown_time_to_come_is_looked_for_again_not_too_soon():
    assert look(sandbox(shutdownTime=text(NOW + timedelta(seconds=90)))).again_in == 90.0
    soon = sandbox(shutdownTime=text(NOW + timedelta(seconds=1)))
    assert look(soon, living_pod(soon)).again_in == 2.0


def test_a_sandbox_that_is_leaving_is_left_to_its_owners_references():
    box = sandbox()
    box["metadata"]["deletionTimestamp"] = text(NOW)
    decision = look(box)
    assert (decision.actions, decision.status) == ((), None)


def test_a_running_pods_metadata_follows_its_template_and_its_spec_never_does():
    box = sandbox()
    box["spec"]["podTemplate"]["metadata"] = {"labels": {"team": "red", "old": "x"}}
    pod = living_pod(box)
    pod["metadata"]["labels"]["added-by"] = "somebody"
    box["spec"]["podTemplate"]["metadata"] = {"labels": {"team": "blue"}, "annotations": {"why": "so"}}
    box["spec"]["podTemplate"]["spec"]["containers"][0]["image"] = "app:2"
    (patch,) = look(box, pod).actions
    assert patch.patch["metadata"]["labels"] == {"team": "blue", "old": None}
    assert patch.patch["metadata"]["annotations"]["why"] == "so"
    assert set(patch.patch) == {"metadata"}


def test_a_condition_that_says_the_same_keeps_its_time_and_foreign_ones_stay():
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
    conditions = {one["type"]: one for one in look(box, living_pod(box)).status["conditions"]}
    assert conditions["Ready"]["lastTransitionTime"] == "2025-01-01T00:00:00Z"
    assert "Theirs" in conditions
    assert "Finished" not in conditions
