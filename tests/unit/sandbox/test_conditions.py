"""Conditions of a Sandbox: one row for each row of the published API, with exact messages."""

from __future__ import annotations

import pytest
from tests.support.sandbox_objects import (
    NOW,
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

from holdfast.sandbox import RejectedWrite, manifests

BOX = sandbox()
SERVED = sandbox(service=True)
SUSPENDED = sandbox(operatingMode="Suspended")
WITH_PVC = sandbox(volumeClaimTemplates=[workspace_claim_template()])
EXPIRED = sandbox(shutdownTime=timestamp(NOW))
UNSCHEDULED = [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "no room"}]
SCHEDULED = {"type": "PodScheduled", "status": "True"}
UNREADY = [SCHEDULED, {"type": "Ready", "status": "False"}]
REJECTED_POD = (RejectedWrite(kind="Pod", message='pods "a" is forbidden: exceeded quota'),)
INVALID_POD = (RejectedWrite(kind="Pod", message='Pod "a" is invalid', is_permanent=True),)
REJECTED_SERVICE = (RejectedWrite(kind="Service", message="failed to delete service: no"),)


def second_pod():
    pod = running_pod(BOX, uid="p-2")
    pod["metadata"]["name"] = "a-2"
    return pod


def terminating(pod):
    pod["metadata"]["deletionTimestamp"] = timestamp(NOW)
    return pod


def unlabelled(obj):
    obj["metadata"]["labels"] = {}
    return without_owner(obj)


def service(**spec):
    made = manifests.service_manifest(SERVED)
    made["metadata"]["uid"] = "svc"
    return {**made, "spec": {**made["spec"], **spec}}


def pvc():
    (made,) = manifests.pvc_manifests(WITH_PVC)
    made["metadata"]["uid"] = "pvc"
    return made


def by_owner(kind, name):
    return f'{kind} "{name}" is owned by Job/other (UID: x), not by sandbox "a"'


def unauthorized(kind, name):
    return (
        f'cannot adopt unowned {kind} "{name}": missing required pool authorization label '
        '("agents.x-k8s.io/adoptable") or sandbox tracking label ("agents.x-k8s.io/sandbox-name-hash")'
    )


def error(text):
    return f"False ReconcilerError: Error seen: {text}"


MULTIPLE = (
    "False MultiplePods: multiple Pods (2) are controlled by this Sandbox; refusing to choose or create a Pod"
)
FOREIGN = with_foreign_owner(running_pod(BOX))
NO_IPS = {"podIP": None, "podIPs": []}

READY = {
    "expired": (EXPIRED, [running_pod(BOX)], {}, "False SandboxExpired: Sandbox has expired"),
    "expired, several pods": (
        EXPIRED, [running_pod(BOX), second_pod()], {}, "False SandboxExpired: Sandbox has expired"),
    "several pods": (BOX, [running_pod(BOX), second_pod()], {}, MULTIPLE),
    "several pods before an error": (BOX, [running_pod(BOX), second_pod()], {"rejected": REJECTED_POD},
        MULTIPLE),
    "several pods of a suspended sandbox": (SUSPENDED, [running_pod(BOX), second_pod()], {}, MULTIPLE),
    "foreign pod": (BOX, [FOREIGN], {}, error(by_owner("pod", "a"))),
    "pod without label": (BOX, [unlabelled(running_pod(BOX))], {}, error(unauthorized("pod", "a"))),
    "foreign PVC": (WITH_PVC, [], {"pvcs": {"workspace-a": with_foreign_owner(pvc())}},
        error(by_owner("PVC", "workspace-a"))),
    "PVC without label": (WITH_PVC, [], {"pvcs": {"workspace-a": unlabelled(pvc())}},
        error(unauthorized("PVC", "workspace-a"))),
    "foreign Service": (SERVED, [running_pod(BOX)], {"service": with_foreign_owner(service())},
        error(by_owner("service", "a"))),
    "foreign Service, not requested": (BOX, [running_pod(BOX)], {"service": with_foreign_owner(service())},
        error(by_owner("service", "a"))),
    "Service without label": (SERVED, [running_pod(BOX)], {"service": unlabelled(service())},
        error(unauthorized("service", "a"))),
    "Service with address": (
        SERVED, [running_pod(BOX)], {"service": without_owner(service(clusterIP="10.0.0.1"))},
        error('cannot adopt service "a": ClusterIP is "10.0.0.1" (expected "None", field is immutable)')),
    "two errors": (SERVED, [FOREIGN], {"service": with_foreign_owner(service())},
        error(by_owner("pod", "a") + "\n" + by_owner("service", "a"))),
    "rejected pod": (BOX, [], {"rejected": REJECTED_POD}, error('pods "a" is forbidden: exceeded quota')),
    "invalid pod": (BOX, [], {"rejected": INVALID_POD}, 'False InvalidConfiguration: Pod "a" is invalid'),
    "error of a suspended sandbox": (SUSPENDED, [], {"rejected": REJECTED_SERVICE},
        error("failed to delete service: no")),
    "suspending": (SUSPENDED, [running_pod(BOX)], {}, "False SandboxSuspended: Sandbox is suspending"),
    "suspending, foreign pod": (SUSPENDED, [FOREIGN], {}, "False SandboxSuspended: Sandbox is suspending"),
    "suspended": (SUSPENDED, [], {}, "False SandboxSuspended: Sandbox is suspended"),
    "succeeded": (BOX, [running_pod(BOX, phase="Succeeded")], {},
        "False PodSucceeded: Pod completed successfully"),
    "failed": (BOX, [failed_pod(BOX)], {}, "False PodFailed: Pod failed"),
    "failed, recreated": (recreating_sandbox(), [failed_pod(BOX)], {},
        "False DependenciesNotReady: Pod exists with phase: Failed"),
    "failed while suspending": (SUSPENDED, [failed_pod(BOX)], {},
        "False SandboxSuspended: Sandbox is suspending"),
    "pending": (BOX, [running_pod(BOX, phase="Pending")], {},
        "False DependenciesNotReady: Pod exists with phase: Pending"),
    "new pod": (BOX, [], {}, "False DependenciesNotReady: Pod exists with phase: Pending"),
    "no pod yet": (WITH_PVC, [], {"pvcs": {"workspace-a": terminating(without_owner(pvc()))}},
        "False DependenciesNotReady: Pod does not exist"),
    "unready": (BOX, [running_pod(BOX, conditions=UNREADY)], {},
        "False DependenciesNotReady: Pod is Running but not Ready"),
    "no address": (BOX, [running_pod(BOX, **NO_IPS)], {},
        "False DependenciesNotReady: Pod is Ready but has no podIPs yet"),
    "no Service": (SERVED, [running_pod(BOX)], {},
        "False DependenciesNotReady: Pod is Ready; Service does not exist"),
    "ready": (BOX, [running_pod(BOX)], {}, "True DependenciesReady: Pod is Ready"),
    "ready with Service": (SERVED, [running_pod(BOX)], {"service": service()},
        "True DependenciesReady: Pod is Ready; Service Exists"),
    "ready with kept Service": (BOX, [running_pod(BOX)], {"service": service()},
        "True DependenciesReady: Pod is Ready; Service Exists"),
    "ready with ignored Service": (BOX, [running_pod(BOX)], {"service": without_owner(service())},
        "True DependenciesReady: Pod is Ready"),
    "ready and terminating": (BOX, [terminating(running_pod(BOX))], {},
        "True DependenciesReady: Pod is Ready"),
}  # fmt: skip

UNKNOWN = "Unknown PodStateUnknown: Pod state is unknown. Sandbox suspension cannot be confirmed"
TERMINATED = "True PodTerminated: Pod has been terminated. Sandbox is suspended"
TERMINATING = "False PodTerminating: Pod is terminating. Sandbox is suspending"
RUNNING = "False NotSuspended: Sandbox is not suspended"
SUSPENSION = {
    "running": (BOX, [running_pod(BOX)], {}, RUNNING),
    "several pods": (BOX, [running_pod(BOX), second_pod()], {}, RUNNING),
    "several pods, suspended": (SUSPENDED, [running_pod(BOX), second_pod()], {}, UNKNOWN),
    "no pod": (SUSPENDED, [], {}, TERMINATED),
    "foreign pod": (SUSPENDED, [FOREIGN], {},
        "False PodNotOwned: Refused to delete pod because it is not owned by this sandbox"),
    "pod": (SUSPENDED, [running_pod(BOX)], {}, TERMINATING),
    "terminating pod": (SUSPENDED, [terminating(running_pod(BOX))], {}, TERMINATING),
    "expired before the first reconciliation": (EXPIRED, [], {}, RUNNING),
}  # fmt: skip

NOT_REPORTED = "Unknown PodSchedulingUnknown: Pod has not reported a PodScheduled condition yet"
UNDETERMINED = "Unknown PodSchedulingUnknown: Pod state is unknown. Pod scheduling cannot be determined"
SCHEDULING = {
    "scheduled": (BOX, [running_pod(BOX)], {}, "True PodScheduled: "),
    "unscheduled": (BOX, [running_pod(BOX, phase="Pending", conditions=UNSCHEDULED)], {},
        "False Unschedulable: no room"),
    "without reason": (BOX, [running_pod(BOX, conditions=[{**SCHEDULED, "status": "False"}])], {},
        "False PodSchedulingUnknown: "),
    "not reported": (BOX, [running_pod(BOX, conditions=[])], {}, NOT_REPORTED),
    "new pod": (BOX, [], {}, NOT_REPORTED),
    "rejected": (BOX, [], {"rejected": REJECTED_POD}, UNDETERMINED),
    "several pods": (BOX, [running_pod(BOX), second_pod()], {}, UNDETERMINED),
    "suspending": (SUSPENDED, [running_pod(BOX)], {}, "True PodScheduled: "),
    "terminating": (BOX, [terminating(running_pod(BOX))], {}, "True PodScheduled: "),
    "with an error": (SERVED, [running_pod(BOX)], {"service": with_foreign_owner(service())},
        "True PodScheduled: "),
    "no pod": (SUSPENDED, [], {}, None),
    "foreign pod": (BOX, [FOREIGN], {}, None),
    "expired": (EXPIRED, [running_pod(BOX)], {}, None),
}  # fmt: skip

FINISHED = {
    "succeeded": (BOX, [running_pod(BOX, phase="Succeeded")], {},
        "True PodSucceeded: Pod completed successfully"),
    "failed": (BOX, [failed_pod(BOX)], {}, "True PodFailed: Pod failed"),
    "failed while suspending": (SUSPENDED, [failed_pod(BOX)], {}, "True PodFailed: Pod failed"),
    "failed, recreated": (recreating_sandbox(), [failed_pod(BOX)], {}, None),
    "running": (BOX, [running_pod(BOX)], {}, None),
    "gone": (SUSPENDED, [], {}, None),
    "foreign pod": (BOX, [with_foreign_owner(failed_pod(BOX))], {}, None),
}  # fmt: skip

ROWS = [
    pytest.param(kind, *row, id=f"{kind}-{name}")
    for kind, rows in (
        ("Ready", READY), ("Suspended", SUSPENSION), ("PodScheduled", SCHEDULING), ("Finished", FINISHED))
    for name, row in rows.items()
]  # fmt: skip


@pytest.mark.parametrize(("kind", "box", "pods", "more", "published"), ROWS)
def test_condition_is_as_published(kind, box, pods, more, published):
    decision = reconcile(box, *pods, **more)
    rows = [row for row in decision.status["conditions"] if row["type"] == kind]
    shown = [f"{row['status']} {row['reason']}: {row['message']}" for row in rows]
    assert shown == ([] if published is None else [published])
    assert all(row["observedGeneration"] == 3 for row in rows)


def test_status_of_suspending_sandbox_shows_its_pod_until_it_is_gone():
    ending = reconcile(SUSPENDED, terminating(running_pod(BOX))).status
    assert (ending["podIPs"], ending["nodeName"]) == (["10.0.0.9"], "node")
    gone = reconcile({**SUSPENDED, "status": ending}).status
    assert {"podIPs", "nodeName"}.isdisjoint(gone)
    assert gone["selector"] == ending["selector"]


def test_selector_is_absent_until_a_pod_existed():
    assert "selector" not in reconcile(SUSPENDED).status
    assert "selector" in reconcile(BOX).status


def test_status_of_foreign_pod_is_not_shown():
    assert {"podIPs", "nodeName"}.isdisjoint(reconcile(BOX, FOREIGN).status)


def test_service_stays_in_status_while_several_pods_exist():
    box = {**SERVED, "status": reconcile(SERVED, running_pod(BOX), service=service()).status}
    stopped = reconcile(box, running_pod(BOX), second_pod())
    assert (stopped.status["service"], stopped.status["serviceFQDN"]) == ("a", "a.ns.svc.cluster.local")
    assert stopped.actions == ()


def test_expiry_keeps_status_until_the_pod_is_deleted_and_conditions_forever():
    box = sandbox(shutdownTime=timestamp(NOW))
    before = reconcile(sandbox(), running_pod(box, phase="Succeeded")).status
    marked = reconcile({**box, "status": before}, running_pod(box, phase="Succeeded"))
    assert (marked.actions, marked.status["podIPs"]) == ((), ["10.0.0.9"])
    done = reconcile({**box, "status": marked.status}, running_pod(box, phase="Succeeded"))
    assert set(done.status) == {"conditions"}
    assert [row["type"] for row in done.status["conditions"]] == ["Suspended", "Finished", "Ready"]
    assert message_of(done, "Finished") == "Pod completed successfully"


def test_sandbox_created_after_its_shutdown_time_gets_no_pod():
    assert [reconcile(EXPIRED).actions, reconcile(EXPIRED, now=NOW).status.keys()] == [(), {"conditions"}]
