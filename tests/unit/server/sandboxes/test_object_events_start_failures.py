"""Which events of a pod tell that it cannot start."""

from __future__ import annotations

import pytest

from holdfast.api import Phase, SandboxReason, SandboxView
from holdfast.server.sandboxes.object_events import find_start_failure, is_starting

OUT_OF_MEMORY = (
    "Failed to create pod sandbox: rpc error: code = Unknown desc = failed to create containerd task: failed "
    "to create shim task: OCI runtime create failed: runc create failed: unable to start container process: "
    "container init was OOM-killed (memory limit too low?): unknown"
)
NO_MEMORY = "Failed to create pod sandbox: runc create failed: fork/exec: cannot allocate memory"
NO_HANDLER = (
    'Failed to create pod sandbox: rpc error: code = Unknown desc = no runtime for "gvisor" is configured'
)
BUSY = "Failed to create pod sandbox: rpc error: code = DeadlineExceeded desc = context deadline exceeded"
NO_SECRET = 'MountVolume.SetUp failed for volume "s" : secret "none" not found'
NO_KEY = 'MountVolume.SetUp failed for volume "s" : references non-existent secret key: token'
NOT_REGISTERED = 'MountVolume.SetUp failed for volume "t" : object "ns"/"kube-root-ca.crt" not registered'


def event(reason, message="", *, count=1, second=10, uid="u"):
    return {
        "metadata": {"name": "e", "creationTimestamp": "2026-01-01T00:00:00Z"},
        "involvedObject": {"kind": "Pod", "name": "a", "uid": uid},
        "reason": reason,
        "message": message,
        "count": count,
        "lastTimestamp": f"2026-01-01T00:00:{second:02d}Z",
    }


@pytest.mark.parametrize(
    ("reason", "message", "count"),
    [
        ("FailedCreatePodSandBox", OUT_OF_MEMORY, 1),
        ("FailedCreatePodSandBox", NO_MEMORY, 1),
        ("FailedCreatePodSandBox", NO_HANDLER, 3),
        ("FailedMount", NO_SECRET, 5),
        ("FailedMount", NO_KEY, 9),
    ],
)
def test_final_failures_have_the_reason_and_message_of_the_event(reason, message, count):
    events = [event("Scheduled", second=1), event(reason, message, count=count)]
    assert find_start_failure(events, "u") == (reason, message)


@pytest.mark.parametrize(
    ("reason", "message", "count"),
    [
        ("FailedCreatePodSandBox", NO_HANDLER, 2),
        ("FailedCreatePodSandBox", BUSY, 20),
        ("FailedMount", NO_SECRET, 4),
        ("FailedMount", NOT_REGISTERED, 20),
        ("FailedScheduling", "0/1 nodes are available", 20),
        ("Unhealthy", "connection refused", 20),
    ],
)
def test_failures_that_may_end_are_not_final(reason, message, count):
    assert find_start_failure([event(reason, message, count=count)], "u") is None


def test_events_of_an_earlier_pod_are_ignored():
    assert find_start_failure([event("FailedMount", NO_SECRET, count=9, uid="earlier")], "u") is None


@pytest.mark.parametrize("reason", ["Pulling", "Pulled", "Created", "Started"])
def test_pod_that_continued_has_no_failure(reason):
    failed = event("FailedMount", NO_SECRET, count=9)
    assert find_start_failure([event(reason, second=11), failed], "u") is None
    assert find_start_failure([event(reason, second=9), failed], "u") is not None


def test_newest_failure_is_reported():
    events = [
        event("FailedCreatePodSandBox", OUT_OF_MEMORY, second=30),
        event("FailedMount", NO_SECRET, count=9, second=20),
    ]
    assert find_start_failure(events, "u").reason == "FailedCreatePodSandBox"
    assert find_start_failure(list(reversed(events)), "u").reason == "FailedCreatePodSandBox"


def test_no_events_mean_no_failure():
    assert find_start_failure([], "u") is None


@pytest.mark.parametrize(("pod_ips", "expected"), [([], True), (["10.0.0.9"], False)])
def test_pod_with_an_address_has_started(pod_ips, expected):
    reason = SandboxReason.DEPENDENCIES_NOT_READY
    view = SandboxView(name="a", id="1", phase=Phase.PENDING, reason=reason, pod_ips=pod_ips)
    assert is_starting(view) is expected
