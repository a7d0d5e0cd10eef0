"""Which Kubernetes events a sandbox shows, in which order."""

from holdfast.server.sandboxes.object_events import MAX_EVENTS, recent_events

CREATED = "2026-11-19T10:00:00Z"


OBJECTS = {("Sandbox", "a"), ("Pod", "a"), ("PersistentVolumeClaim", "workspace-a")}


def event(second, kind="Pod", name="a", **fields):
    return {
        "metadata": {"creationTimestamp": CREATED},
        "involvedObject": {"kind": kind, "name": name},
        "reason": f"R{second}",
        "lastTimestamp": f"2026-11-19T10:00:{second:02}Z",
        **fields,
    }


def reasons(events):
    return [view.reason for view in recent_events(events, OBJECTS, since=CREATED)]


def test_newest_event_is_last():
    assert reasons([event(3), event(1), event(2)]) == ["R1", "R2", "R3"]


def test_number_of_events_is_bounded_and_newest_are_kept():
    shown = reasons([event(second) for second in range(MAX_EVENTS + 5)])
    assert shown == [f"R{second}" for second in range(5, MAX_EVENTS + 5)]


def test_events_of_a_sandbox_with_the_name_of_the_workspace_are_left_out():
    foreign = event(1, kind="Sandbox", name="workspace-a")
    own = event(2, kind="PersistentVolumeClaim", name="workspace-a")
    assert reasons([foreign, own]) == ["R2"]


def test_events_of_other_kinds_and_of_an_earlier_sandbox_are_left_out():
    earlier = event(1, lastTimestamp="2026-11-19T09:59:59Z")
    assert reasons([earlier, event(2, kind="Node"), event(3, kind="Sandbox")]) == ["R3"]


def test_count_and_time_of_a_series_are_used():
    series = {"count": 7, "lastObservedTime": "2026-11-19T10:00:30.5Z"}
    (view,) = recent_events([event(1, lastTimestamp=None, series=series)], OBJECTS, since=CREATED)
    assert (view.count, view.last_seen, view.type) == (7, "2026-11-19T10:00:30.5Z", "Normal")
    (view,) = recent_events([event(1, lastTimestamp=None, count=None)], OBJECTS, since=CREATED)
    assert (view.count, view.last_seen) == (1, CREATED)


def test_event_with_an_unreadable_time_is_left_out():
    assert reasons([event(1, lastTimestamp="soon"), event(2)]) == ["R2"]
