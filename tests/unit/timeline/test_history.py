"""Which run is shown, and which one it is compared with."""

from __future__ import annotations

import pytest

from holdfast.errors import StoreError, UsageError
from holdfast.timeline import earlier_run, find_run, read_timeline
from holdfast.workflow import RunRecord, SQLiteStore, Step, Workflow


def run_of(run_id, started=0.0, **fields):
    fields = {"command": "up", "workflow": "up", "subject": "dev", "outcome": "finished", **fields}
    return RunRecord(id=run_id, started=started, **fields)


RUNS = [run_of("20260102-b", 2.0), run_of("20260101-a", 1.0), run_of("20260101-ab", 0.5)]


@pytest.mark.parametrize(
    ("run_id", "found"), [("last", 0), ("20260102", 0), ("20260101-a", 1), ("01-ab", 2), ("-b", 0)]
)
def test_run_by_id_part_or_the_word_last(run_id, found):
    assert find_run(RUNS, run_id) is RUNS[found]


@pytest.mark.parametrize(
    ("run_id", "problem"),
    [
        ("nope", "no run matches"),
        ("20260101", "several runs match"),
        ("", "no run matches"),
        ("…ü", "no run matches"),
        ("-1", "no run matches"),
    ],
)
def test_unknown_and_ambiguous_run(run_id, problem):
    with pytest.raises(UsageError, match=problem) as error:
        find_run(RUNS, run_id)
    assert repr(run_id) in error.value.message


def test_long_id_is_cut_in_the_error():
    with pytest.raises(UsageError) as error:
        find_run(RUNS, "x" * 100_000)
    assert len(error.value.message) < 120


def test_last_of_no_runs():
    with pytest.raises(UsageError, match="'last': there are no runs yet"):
        find_run([], "last")


def test_earlier_run_is_the_latest_success_of_the_same_command_before_it():
    newest = run_of("now", 9.0, outcome="failed")
    others = [
        run_of("later", 10.0), run_of("other-gateway", 8.0, subject="red"),
        run_of("other-command", 7.0, command="up --wipe"), run_of("failed", 6.0, outcome="failed"),
        run_of("wanted", 5.0), run_of("older", 4.0),
    ]  # fmt: skip
    found = earlier_run([newest, *others], newest)
    assert found is not None
    assert found.id == "wanted"
    assert earlier_run([newest], newest) is None


def test_timeline_of_a_store_compares_with_the_previous_run(tmp_path):
    path = tmp_path / "s.db"
    flow = Workflow("w", [Step("a", run=lambda ctx: 1, repeat="safe")], forget_on_success=True)
    ids = [flow.run(store=SQLiteStore(path)).run for _ in range(3)]
    timeline = read_timeline(path)
    assert timeline.run.id == ids[2]
    assert timeline.comparison.run.id == ids[1]
    assert read_timeline(path, ids[2], compare=ids[0]).comparison.run.id == ids[0]
    assert read_timeline(path, ids[0]).comparison is None


def test_timeline_of_a_run_that_is_still_running_has_its_steps(tmp_path):
    path, seen = tmp_path / "s.db", []
    steps = [
        Step("first", run=lambda ctx: 1, repeat="safe"),
        Step("second", needs=["first"], run=lambda ctx: seen.append(read_timeline(path)), repeat="safe"),
    ]
    Workflow("w", steps).run(store=SQLiteStore(path))
    (timeline,) = seen
    assert timeline.run.outcome == "running"
    assert [(step.name, step.state) for step in timeline.steps] == [
        ("first", "finished"), ("second", "in flight"),
    ]  # fmt: skip


def test_damaged_store(tmp_path):
    (tmp_path / "s.db").write_bytes(b"\0" * 7000)
    with pytest.raises(StoreError, match="is damaged"):
        read_timeline(tmp_path / "s.db")
