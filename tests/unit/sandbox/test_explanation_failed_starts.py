"""Explanations of sandboxes that cannot start."""

from __future__ import annotations

from decimal import Decimal

import pytest
from tests.support.sandbox_objects import (
    condition_of,
    explanation_of,
    message_of,
    reconcile,
    running_pod,
    sandbox,
    workspace_claim_template,
)

from holdfast.sandbox import manifests
from holdfast.sandbox.dependents import largest_disk

GIB = 2**30
ENDED = {"exitCode": 3, "reason": "Error", "message": "one\nno such table\n\n"}


def starting(**statuses):
    """The explanation for a pod with these container statuses."""
    box = sandbox()
    explained = explanation_of(reconcile(box, running_pod(box, conditions=[], **statuses)))
    return explained and explained[1]


@pytest.mark.parametrize(
    ("container", "words"),
    [
        ({"state": {"terminated": ENDED}}, "Error: exited with code 3: no such table"),
        ({"state": {"terminated": {"exitCode": 0, "reason": "Completed"}}},
         "Completed: exited with code 0"),
        ({"state": {"terminated": {"exitCode": 128, "reason": "StartError", "message": "no such file"}}},
         "StartError: exited with code 128: no such file"),
        ({"state": {"terminated": ENDED}, "restartCount": 1},
         "Error: exited with code 3, started 2 times: no such table"),
        ({"state": {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off 10s"}},
          "lastState": {"terminated": ENDED}, "restartCount": 2},
         "CrashLoopBackOff: exited with code 3, started 3 times: no such table"),
        ({"state": {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off 10s"}}},
         "CrashLoopBackOff: back-off 10s"),
        ({"state": {"waiting": {"reason": "InvalidImageName"}}}, "InvalidImageName"),
    ],
)  # fmt: skip
def test_crashing_program_is_reported_with_exit_code_and_log_tail(container, words):
    assert starting(containerStatuses=[{"name": "main", **container}]) == f"container main: {words}"


def test_init_container_may_succeed_but_not_fail():
    done = {"name": "seed", "state": {"terminated": {"exitCode": 0, "reason": "Completed"}}}
    creating = {"name": "main", "state": {"waiting": {"reason": "PodInitializing"}}}
    assert starting(initContainerStatuses=[done], containerStatuses=[creating]) is None
    failed = {"name": "seed", "state": {"terminated": {"exitCode": 1, "message": "no room"}}}
    assert starting(initContainerStatuses=[failed], containerStatuses=[creating]) == (
        "container seed: Error: exited with code 1: no room"
    )


def test_log_tail_is_short():
    chatty = {"terminated": {"exitCode": 1, "message": "x" * 4000}}
    assert len(starting(containerStatuses=[{"name": "main", "state": chatty}])) < 500


def claimed(size, storage_class, **status):
    box = sandbox(volumeClaimTemplates=[workspace_claim_template()])
    box["spec"]["volumeClaimTemplates"][0]["spec"]["resources"] = {"requests": {"storage": size}}
    (claim,) = manifests.pvc_manifests(box)
    claim["metadata"]["uid"] = "c"
    claim["spec"] = {**claim["spec"], "storageClassName": storage_class}
    claim["status"] = status
    return box, {"workspace-a": claim}


def test_oversized_pvc_is_created_first_and_then_checked_by_class():
    box, claims = claimed("1Ti", "local-path", phase="Pending")
    first = reconcile(box, largest_disk=Decimal(100 * GIB))
    assert [action.manifest["kind"] for action in first.actions] == ["PersistentVolumeClaim"]
    told = reconcile(box, pvcs=claims, largest_disk=Decimal(100 * GIB))
    assert told.actions == ()
    assert condition_of(told, "Ready") == ("False", "ReconcilerError")
    assert message_of(told) == "Error seen: PVC workspace-a requests 1Ti, but the largest disk has 100 GiB"


@pytest.mark.parametrize(
    ("size", "storage_class", "phase", "disk"),
    [
        ("1Ti", "fast-ssd", "Pending", 100 * GIB),  # this class has other disks
        ("1Ti", "local-path", "Bound", 100 * GIB),  # already provisioned
        ("1Gi", "local-path", "Pending", 100 * GIB),
        ("1Ti", "local-path", "Pending", None),  # the disk size is unknown
    ],
)
def test_satisfiable_pvc_is_not_a_problem(size, storage_class, phase, disk):
    box, claims = claimed(size, storage_class, phase=phase)
    decision = reconcile(box, pvcs=claims, largest_disk=None if disk is None else Decimal(disk))
    assert [action.manifest["kind"] for action in decision.actions] == ["Pod"]


def test_largest_reported_disk():
    def node(**capacity):
        return {"status": {"capacity": capacity}}

    sizes = [node(**{"ephemeral-storage": size}) for size in ("264212084Ki", "1Gi")]
    assert largest_disk([*sizes, node(cpu="1"), {}]) == 264212084 * 1024
    assert largest_disk([node(cpu="1")]) is None
