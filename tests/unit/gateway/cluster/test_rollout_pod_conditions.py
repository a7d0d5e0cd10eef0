"""Wait conditions of pods: which pods count, and which states fail a wait immediately."""

from __future__ import annotations

import pytest

from holdfast.gateway.cluster.manifests import TEMPLATE_ANNOTATION
from holdfast.gateway.cluster.rollout import (
    PERMANENT_WAITING_REASONS,
    TemplatePods,
    permanent_failure,
    pod_progress,
    pod_succeeded,
    report_changes,
)
from holdfast.kube import WaitResult

CONTAINERS = [{"name": "api", "image": "ours"}]
TEMPLATE = {"metadata": {"annotations": {TEMPLATE_ANNOTATION: "now"}}, "spec": {"containers": CONTAINERS}}


def pod(mark="now", *, waiting=None, ready=False, phase="Pending", going=False, **status):
    rows = (
        [{"name": "api", "state": {"waiting": {"reason": waiting, "message": "why\nmore"}}}]
        if waiting
        else []
    )
    metadata = {"name": "p", "annotations": {TEMPLATE_ANNOTATION: mark}}
    if going:
        metadata["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    conditions = [{"type": "Ready", "status": "True" if ready else "False"}]
    return {
        "metadata": metadata,
        "spec": {"containers": CONTAINERS},
        "status": {"phase": phase, "conditions": conditions, "containerStatuses": rows, **status},
    }


@pytest.mark.parametrize(
    ("pods", "done", "observed"),
    [
        ([], False, "no pod yet"),
        ([pod("before", ready=True)], False, "the old pod is terminating"),
        ([pod("before", waiting="CrashLoopBackOff")], False, "the old pod is terminating"),
        ([pod()], False, "pending"),
        ([pod(waiting="ContainerCreating")], False, "creating its container"),
        ([pod(ready=True, phase="Running")], True, "ready"),
        ([pod(ready=True, going=True)], False, "no pod yet"),
        (
            [{**pod(ready=True), "spec": {"containers": [{"name": "api", "image": "other"}]}}],
            False,
            "the old pod is terminating",
        ),
        ([pod(phase="Failed"), pod(ready=True, phase="Running")], True, "ready"),
    ],
)
def test_rollout_counts_only_pods_of_current_template(pods, done, observed):
    result = TemplatePods(TEMPLATE)(pods)
    assert (result.done, result.failed, result.observed) == (done, "", observed)


@pytest.mark.parametrize("reason", sorted(PERMANENT_WAITING_REASONS))
def test_permanent_pod_failure_fails_immediately_with_reason(reason):
    assert TemplatePods(TEMPLATE)([pod(waiting=reason)]).failed == f"{reason}: why"
    assert pod_succeeded(pod(waiting=reason)).failed == f"{reason}: why"


def test_creating_container_is_not_a_failure():
    assert permanent_failure(pod(waiting="ContainerCreating")) == ""
    assert permanent_failure({"metadata": {"name": "p"}}) == ""


def test_unschedulable_pod_is_reported():
    conditions = [{"type": "PodScheduled", "status": "False", "message": "no free ports"}]
    assert pod_progress(pod(conditions=conditions)) == "not scheduled yet: no free ports"


def test_failed_pod_is_reported_with_exit_code():
    rows = [{"name": "main", "state": {"terminated": {"exitCode": 3}}}]
    assert pod_succeeded(pod(phase="Failed", containerStatuses=rows)).failed == "failed with exit code 3"
    assert pod_succeeded(pod(phase="Succeeded")).done
    assert not pod_succeeded(None).done


def test_each_observed_change_is_reported_once():
    lines = []
    watched = report_changes(lambda seen: WaitResult(observed=seen), lines.append)
    for words in ("a", "a", "b", "b", "a"):
        watched(words)
    assert lines == ["a", "b", "a"]
