"""The model of a timeline, from records of runs."""

from __future__ import annotations

from hypothesis import example, given, strategies as st
from tests.support.timeline_records import STARTED, ran, run_of

from holdfast.events import StoreDamaged
from holdfast.timeline import build_timeline, render_page
from holdfast.workflow import ProbeLog, StepLog


def step_of(timeline, name):
    (found,) = (step for step in timeline.steps if step.name == name)
    return found


def test_steps_are_in_the_order_of_their_start_with_times_from_the_start_of_the_run():
    timeline = build_timeline(run_of(ran("b", 2, 3), ran("a", 0, 2, title="Do a")))
    assert [(step.name, step.title, step.start, step.end) for step in timeline.steps] == [
        ("a", "Do a", 0, 2), ("b", "b", 2, 5),
    ]  # fmt: skip
    assert timeline.length == 10


def test_steps_that_run_at_the_same_time_have_different_lanes():
    timeline = build_timeline(run_of(ran("a", 0, 4), ran("b", 1, 1), ran("c", 2.5, 3), ran("d", 5.5, 1)))
    assert [step.lane for step in timeline.steps] == [0, 1, 1, 0]
    assert (timeline.lanes, timeline.concurrency) == (2, 2)


@given(
    st.lists(
        st.tuples(st.floats(0, 50), st.floats(0.01, 20)).map(lambda each: (each[0], each[1])), max_size=30
    )
)
def test_no_two_steps_of_one_lane_overlap(spans):
    logs = [ran(f"s{number}", start, seconds) for number, (start, seconds) in enumerate(spans)]
    timeline = build_timeline(run_of(*logs, seconds=100.0))
    for first in timeline.steps:
        for second in timeline.steps:
            if first.name < second.name and first.lane == second.lane:
                overlap = min(first.end, second.end) - max(first.start, second.start)
                assert overlap <= 0.01
    assert timeline.lanes >= timeline.concurrency


def test_critical_path_follows_the_needs_that_ended_last():
    timeline = build_timeline(
        run_of(
            ran("a", 0, 1),
            ran("slow", 1, 5, needs=("a",)),
            ran("quick", 1, 1, needs=("a",)),
            ran("end", 6, 2, needs=("slow", "quick")),
        )
    )
    assert {step.name for step in timeline.steps if step.is_critical} == {"a", "slow", "end"}
    assert timeline.critical == 8


def test_critical_path_leads_through_the_probes_of_skipped_steps():
    run = run_of(
        ran("a", 0, 1), ran("b", 4, 1, needs=("probed",)),
        probes={"probed": ProbeLog(at=STARTED + 1, seconds=3.0, needs=("a",))},
    )  # fmt: skip
    timeline = build_timeline(run)
    assert all(step.is_critical for step in timeline.steps)
    assert timeline.critical == 5


def test_record_without_dependencies_has_no_critical_path():
    assert build_timeline(run_of(ran("a", 0, 1), ran("b", 1, 1))).critical is None


def test_time_between_the_end_of_the_needs_and_the_start_is_queued():
    timeline = build_timeline(run_of(ran("a", 0, 1), ran("b", 1.5, 1, needs=("a",))))
    assert step_of(timeline, "b").queued == 0.5
    assert step_of(timeline, "a").queued == 0


def test_retries_have_times_delays_and_waits():
    log = ran(
        "pull", 1, 5, retries=("503", "reset"), retry_times=((STARTED + 2, 1.0), (STARTED + 4, 9.0))
    )  # fmt: skip
    timeline = build_timeline(run_of(log))
    first, second = step_of(timeline, "pull").retries
    assert (first.attempt, first.reason, first.at, first.delay, first.waited) == (1, "503", 2, 1.0, 1.0)
    # The step ended 2 s after the second failure, so it cannot have waited 9 s.
    assert (second.attempt, second.at, second.delay, second.waited) == (2, 4, 9.0, 2.0)
    assert (timeline.retries, timeline.waited) == (2, 3.0)


def test_waits_of_nested_retries_do_not_overlap():
    log = ran("x", 0, 9, retries=("a", "b"), retry_times=((STARTED + 1, 5.0), (STARTED + 2, 1.0)))
    assert [mark.waited for mark in step_of(build_timeline(run_of(log)), "x").retries] == [1.0, 1.0]


def test_retries_of_older_records_have_no_times():
    timeline = build_timeline(run_of(ran("pull", 1, 5, retries=("503",))))
    (mark,) = step_of(timeline, "pull").retries
    assert (mark.reason, mark.at, mark.delay, mark.waited) == ("503", None, None, 0.0)


def test_probed_steps_are_in_the_timeline_and_recorded_ones_only_among_the_skipped():
    run = run_of(
        ran("a", 1, 1), skipped={"exists": ["probed"], "done in run r0": ["recorded"]},
        probes={"probed": ProbeLog(at=STARTED + 0.5, seconds=0.25)},
    )  # fmt: skip
    timeline = build_timeline(run)
    probed = step_of(timeline, "probed")
    assert (probed.state, probed.start, probed.seconds, probed.reason) == ("skipped", 0.5, 0.25, "exists")
    assert [step.name for step in timeline.steps] == ["probed", "a"]
    assert [(group.reason, group.steps) for group in timeline.skipped] == [
        ("exists", ("probed",)), ("done in run r0", ("recorded",)),
    ]  # fmt: skip


def test_step_in_flight_at_the_death_of_the_process_reaches_to_the_end_of_the_axis():
    run = run_of(ran("a", 0, 2), ran("b", 2, 0, outcome="in flight"), seconds=7.0, outcome="died")
    assert step_of(build_timeline(run), "b").end == 7.0


def test_axis_of_a_running_run_ends_now():
    run = run_of(ran("a", 1, 0, outcome="in flight"), seconds=0.0, outcome="running")
    timeline = build_timeline(run, now=STARTED + 30)
    assert timeline.length == 30
    assert step_of(timeline, "a").end == 30


def test_clock_that_was_set_during_the_run_gives_no_negative_times():
    run = run_of(ran("a", -3600, 1), ran("b", 90_000, 1), probes={"c": ProbeLog(at=STARTED - 5, seconds=1.0)})
    timeline = build_timeline(run)
    assert all(0 <= step.start <= timeline.length for step in timeline.steps)
    assert timeline.length < 20


def test_step_that_ends_just_after_the_measured_duration_keeps_its_order():
    run = run_of(
        ran("node", 0.0105, 0.00004), ran("record", 0.0112, 0.00002, needs=("node",)), seconds=0.0100
    )
    timeline = build_timeline(run)
    assert [step.name for step in timeline.steps] == ["node", "record"]
    assert all(step.is_critical for step in timeline.steps)


@given(
    st.floats(allow_nan=False, allow_infinity=False), st.floats(allow_nan=False, allow_infinity=False),
    st.floats(allow_nan=False, allow_infinity=False), st.floats(allow_nan=False, allow_infinity=False),
)  # fmt: skip
@example(started=-1e308, seconds=0.0, at=1.7e308, took=0.0)
@example(started=0.0, seconds=1.7e308, at=1.7e308, took=1.7e308)
def test_impossible_times_still_have_a_page(started, seconds, at, took):
    log = StepLog(step="a", outcome="failed", at=at, seconds=took, retries=("x",), retry_times=((at, took),))
    run = run_of(log, started=started, seconds=seconds, probes={"b": ProbeLog(at=at, seconds=seconds)})
    assert "</html>" in render_page(build_timeline(run, earlier=run, now=at))


def test_error_is_split_into_message_and_log_lines():
    error = "node: not ready\n    I1 kubelet starts\n      indented\n\n    E1 no network"
    log = ran("wait", 0, 9, outcome="failed", error=error, code="not-ready", progress=("etcd", "kubelet"))
    run = run_of(log, outcome="failed", step="wait", error=error, code="not-ready", hint="Run `x y`.")
    timeline = build_timeline(run)
    lines = ("I1 kubelet starts", "  indented", "E1 no network")
    assert (timeline.error, timeline.log, timeline.code) == ("node: not ready", lines, "not-ready")
    assert (timeline.failed_step, timeline.hint) == ("wait", "Run `x y`.")
    failed = step_of(timeline, "wait")
    assert (failed.error, failed.log, failed.progress) == ("node: not ready", lines, ("etcd", "kubelet"))


def test_comparison_has_differences_of_steps_versions_and_parameters():
    before = run_of(
        ran("a", 0, 1), ran("b", 1, 2), ran("same", 3, 1), ran("old", 4, 6), id="r0", seconds=8.0,
        tool="0.1", parameters={"image": "x:1", "port": "1"},
    )  # fmt: skip
    after = run_of(
        ran("a", 0, 4), ran("b", 4, 1.5), ran("same", 6, 1), ran("new", 7, 1), seconds=9.5, tool="0.2",
        parameters={"image": "x:2", "wipe": "True"},
    )  # fmt: skip
    timeline = build_timeline(after, earlier=before)
    comparison = timeline.comparison
    assert (comparison.run.id, comparison.seconds) == ("r0", 1.5)
    assert [(each.step, each.before, each.after) for each in comparison.steps] == [
        ("a", 1, 4), ("b", 2, 1.5), ("old", 6, None), ("new", None, 1),
    ]  # fmt: skip
    assert [(each.name, each.before, each.after) for each in comparison.values] == [
        ("version", "0.1", "0.2"), ("image", "x:1", "x:2"), ("port", "1", None), ("wipe", None, "True"),
    ]  # fmt: skip
    assert [step_of(timeline, name).earlier for name in ("a", "same", "new")] == [1, 1, None]


def test_run_without_steps_and_with_damage():
    damage = StoreDamaged(path="/s.db", backup_path="/s.db.damaged", reason="torn page")
    timeline = build_timeline(run_of(seconds=0.0, damage=[damage]))
    assert (timeline.steps, timeline.lanes, timeline.concurrency) == ((), 0, 0)
    assert timeline.length > 0
    assert "torn page" in timeline.damage[0]
