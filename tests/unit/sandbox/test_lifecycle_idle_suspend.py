"""Idle suspension: only with an idle timeout and a recorded last use."""

from __future__ import annotations

from datetime import timedelta

import pytest
from tests.support.sandbox_objects import NOW, reconcile, running_pod, sandbox, timestamp

from holdfast.sandbox.actions import Patch

AFTER, USED = "holdfast.dev/idle-suspend-after", "holdfast.dev/last-used"


def awake(*, after="60", used=None, ready=300):
    box = sandbox()
    box["metadata"]["annotations"] = {AFTER: after} | (
        {} if used is None else {USED: timestamp(NOW - timedelta(seconds=used))}
    )
    since = timestamp(NOW - timedelta(seconds=ready))
    row = {"type": "Ready", "status": "True", "reason": "DependenciesReady", "lastTransitionTime": since}
    box["status"] = {"conditions": [row]}
    return box


def decided(box):
    return reconcile(box, running_pod(box))


def sleeps(box):
    return [
        each.patch["spec"]
        for each in decided(box).actions
        if isinstance(each, Patch) and "spec" in each.patch
    ]


def test_last_use_at_maximum_time_is_handled():
    box = awake(used=0)
    box["metadata"]["annotations"][USED] = "9999-12-31T23:59:59Z"
    assert sleeps(box) == []


@pytest.mark.parametrize(("used", "ready"), [(60, 300), (3600, 60)])
def test_idle_sandbox_is_suspended_after_timeout_since_last_use_or_resume(used, ready):
    assert sleeps(awake(used=used, ready=ready)) == [{"operatingMode": "Suspended"}]


@pytest.mark.parametrize(("used", "ready", "left"), [(10, 300, 50), (3600, 20, 40), (59, 300, 1)])
def test_active_sandbox_is_requeued_at_timeout(used, ready, left):
    box = awake(used=used, ready=ready)
    assert sleeps(box) == []
    assert decided(box).requeue_after == pytest.approx(left, abs=1)


@pytest.mark.parametrize("after", ["", "0", "soon", "-5", "6e1"])
def test_invalid_idle_timeout_is_ignored(after):
    assert sleeps(awake(after=after, used=9999)) == []


def test_missing_or_invalid_last_use_prevents_suspension():
    assert sleeps(awake()) == []
    box = awake(used=100)
    box["metadata"]["annotations"][USED] = "yesterday"
    assert sleeps(box) == []


def test_unready_sandbox_is_not_idle():
    box = awake(used=9999)
    box["status"]["conditions"][0]["status"] = "False"
    assert sleeps(box) == []


def test_suspension_is_conditional_on_observed_last_use():
    box = awake(used=3600)
    box["metadata"]["resourceVersion"] = "41"
    (falling,) = decided(box).actions
    assert falling.patch == {"metadata": {"resourceVersion": "41"}, "spec": {"operatingMode": "Suspended"}}
