"""Starts that cannot succeed: what the sandbox's condition says of each."""

from __future__ import annotations

from decimal import Decimal

import pytest
from tests.support.sandboxes import living_pod, look, said, sandbox, workspace

from holdfast.sandbox import parts
from holdfast.sandbox.disk import largest
from holdfast.sandbox.quantity import amount

GIB = 2**30
ENDED = {"exitCode": 3, "reason": "Error", "message": "one\nno such table\n\n"}


def message(pod, box):
    (ready,) = [one for one in look(box, pod).status["conditions"] if one["type"] == "Ready"]
    return ready["message"]


def starting(**statuses):
    box = sandbox()
    return message(living_pod(box, conditions=[], **statuses), box)


@pytest.mark.parametrize(
    ("container", "words"),
    [
        ({"state": {"terminated": ENDED}}, "Error: it ended with exit code 3: no such table"),
        ({"state": {"terminated": {"exitCode": 0, "reason": "Completed"}}},
         "Completed: it ended with exit code 0"),
        ({"state": {"terminated": {"exitCode": 128, "reason": "StartError", "message": "no such file"}}},
         "StartError: it ended with exit code 128: no such file"),
        ({"state": {"terminated": ENDED}, "restartCount": 1},
         "Error: it ended with exit code 3, started 2 times: no such table"),
        ({"state": {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off 10s"}},
          "lastState": {"terminated": ENDED}, "restartCount": 2},
         "CrashLoopBackOff: it ended with exit code 3, started 3 times: no such table"),
        ({"state": {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off 10s"}}},
         "CrashLoopBackOff: back-off 10s"),
        ({"state": {"waiting": {"reason": "InvalidImageName"}}}, "InvalidImageName"),
    ],
)  # fmt: skip
def test_a_program_that_ends_at_once_is_told_with_its_code_and_last_words(container, words):
    assert starting(containerStatuses=[{"name": "main", **container}]) == f"container main: {words}"


def test_what_prepares_may_end_well_and_may_not_fail():
    done = {"name": "seed", "state": {"terminated": {"exitCode": 0, "reason": "Completed"}}}
    creating = {"name": "main", "state": {"waiting": {"reason": "PodInitializing"}}}
    assert starting(initContainerStatuses=[done], containerStatuses=[creating]) == "the pod is Running"
    failed = {"name": "seed", "state": {"terminated": {"exitCode": 1, "message": "no room"}}}
    assert starting(initContainerStatuses=[failed], containerStatuses=[creating]) == (
        "container seed: Error: it ended with exit code 1: no room"
    )


def test_last_words_are_few():
    chatty = {"terminated": {"exitCode": 1, "message": "x" * 4000}}
    assert len(starting(containerStatuses=[{"name": "main", "state": chatty}])) < 500


def claimed(size, storage_class, **status):
    box = sandbox(volumeClaimTemplates=[workspace()])
    box["spec"]["volumeClaimTemplates"][0]["spec"]["resources"] = {"requests": {"storage": size}}
    (claim,) = parts.claims(box)
    claim["metadata"]["uid"] = "c"
    claim["spec"] = {**claim["spec"], "storageClassName": storage_class}
    claim["status"] = status
    return box, {"workspace-a": claim}


def test_a_claim_larger_than_the_disk_is_made_alone_and_then_judged_by_its_class():
    box, claims = claimed("1Ti", "local-path", phase="Pending")
    first = look(box, disk=Decimal(100 * GIB))
    assert [action.manifest["kind"] for action in first.actions] == ["PersistentVolumeClaim"]
    told = look(box, claims=claims, disk=Decimal(100 * GIB))
    assert told.actions == ()
    assert said(told, "Ready") == ("False", "ReconcilerError")
    (ready,) = [one for one in told.status["conditions"] if one["type"] == "Ready"]
    assert ready["message"] == "the claim workspace-a asks for 1Ti, but the largest disk has 100 GiB"


@pytest.mark.parametrize(
    ("size", "storage_class", "phase", "disk"),
    [
        ("1Ti", "fast-ssd", "Pending", 100 * GIB),  # this class has disks of its own
        ("1Ti", "local-path", "Bound", 100 * GIB),  # it has its room already
        ("1Gi", "local-path", "Pending", 100 * GIB),
        ("1Ti", "local-path", "Pending", None),  # nobody knows
    ],
)
def test_a_claim_that_may_be_had_is_not_in_the_way(size, storage_class, phase, disk):
    box, claims = claimed(size, storage_class, phase=phase)
    decision = look(box, claims=claims, disk=None if disk is None else Decimal(disk))
    assert [action.manifest["kind"] for action in decision.actions] == ["Pod"]


def test_the_largest_disk_of_those_that_are_told():
    def node(**capacity):
        return {"status": {"capacity": capacity}}

    sizes = [node(**{"ephemeral-storage": size}) for size in ("264212084Ki", "1Gi")]
    assert largest([*sizes, node(cpu="1"), {}]) == 264212084 * 1024
    assert largest([node(cpu="1")]) is None


@pytest.mark.parametrize(
    ("text", "value"),
    [("500m", "0.5"), ("2Gi", 2 * GIB), ("1e3", 1000), ("1E", 10**18), ("1.5k", 1500), (".5", "0.5"),
     ("7", 7), ("10Ei", 10 * 2**60), ("3u", "0.000003"), ("", None), ("-1", None), ("1KiB", None),
     (None, None), ("1e9999", None)],
)  # fmt: skip
def test_quantities(text, value):
    assert amount(text) == (None if value is None else Decimal(value))
