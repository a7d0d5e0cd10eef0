"""Concurrent reads of the cluster keep their order and the deadline of the step."""

from holdfast.gateway.cluster.rollout import map_concurrently
from holdfast.retry import Deadline, current_deadline


def test_deadline_applies_on_all_threads():
    with Deadline.after(60) as deadline:
        found = map_concurrently(lambda number: (number, current_deadline()), range(20))
    assert [number for number, _ in found] == list(range(20))
    assert all(inner is not None and inner.expires == deadline.expires for _, inner in found)
