"""A sandbox that nobody uses sleeps when it asked for that, and only where use is noted."""

from __future__ import annotations

from datetime import timedelta

import pytest
from tests.support.sandboxes import NOW, living_pod, look, sandbox, text

from holdfast.sandbox.actions import Patch

AFTER, USED = "holdfast.dev/idle-suspend-after", "holdfast.dev/last-used"


def awake(*, after="60", used=None, ready=300):
    box = sandbox()
    box["metadata"]["annotations"] = {AFTER: after} | (
        {} if used is None else {USED: text(NOW - timedelta(seconds=used))}
    )
    since = text(NOW - timedelta(seconds=ready))
    row = {"type": "Ready", "status": "True", "reason": "DependenciesReady", "lastTransitionTime": since}
    box["status"] = {"conditions": [row]}
    return box


def decided(box):
    return look(box, living_pod(box))


def sleeps(box):
    return [
        each.patch["spec"]
        for each in decided(box).actions
        if isinstance(each, Patch) and "spec" in each.patch
    ]


def test_a_last_use_at_the_end_of_all_times_is_far_away():
    box = awake(used=0)
    box["metadata"]["annotations"][USED] = "9999-12-31T23:59:59Z"
    assert sleeps(box) == []


@pytest.mark.parametrize(("used", "ready"), [(60, 300), (3600, 60)])
def test_it_sleeps_so_long_after_its_last_use_or_its_waking(used, ready):
    assert sleeps(awake(used=used, ready=ready)) == [{"operatingMode": "Suspended"}]


@pytest.mark.parametrize(("used", "ready", "left"), [(10, 300, 50), (3600, 20, 40), (59, 300, 1)])
def test_until_then_it_is_looked_at_again_when_that_is_over(used, ready, left):
    box = awake(used=used, ready=ready)
    assert sleeps(box) == []
    assert decided(box).again_in == pytest.approx(left, abs=1)


@pytest.mark.parametrize("after", ["", "0", "soon", "-5", "6e1"])
def test_what_is_no_number_of_seconds_asks_for_nothing(after):
    assert sleeps(awake(after=after, used=9999)) == []


def test_where_nobody_notes_its_use_it_stays_awake():
    assert sleeps(awake()) == []
    box = awake(used=100)
    box["metadata"]["annotations"][USED] = "yesterday"
    assert sleeps(box) == []


def test_what_is_not_ready_is_not_idle():
    box = awake(used=9999)
    box["status"]["conditions"][0]["status"] = "False"
    assert sleeps(box) == []


def test_it_falls_asleep_only_as_it_was_seen_so_that_a_use_noted_meanwhile_keeps_it_awake():
    box = awake(used=3600)
    box["metadata"]["resourceVersion"] = "41"
    (falling,) = decided(box).actions
    assert falling.patch == {"metadata": {"resourceVersion": "41"}, "spec": {"operatingMode": "Suspended"}}
