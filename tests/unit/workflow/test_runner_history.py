"""What the history of a run records for its timeline."""

from __future__ import annotations

import time

import pytest

from holdfast.errors import HoldfastError
from holdfast.events import EventBus, RunFailed
from holdfast.retry import Policy, constant, testing_mode
from holdfast.workflow import Secret, SQLiteStore, Step, Workflow, absent, done


@pytest.fixture
def store(tmp_path):
    return SQLiteStore(tmp_path / "s.db")


def last_run(store):
    store.open()
    run = store.runs()[0]
    store.close()
    return run


def test_retries_are_recorded_with_time_and_delay(store):
    def flaky(ctx):
        if ctx.attempt < 3:
            raise ConnectionResetError(f"attempt {ctx.attempt}")

    policy = Policy(attempts=5, backoff=constant(7, jitter=0))
    with testing_mode():
        before = time.time()
        Workflow("w", [Step("a", run=flaky, repeat="safe", policy=policy)]).run(store=store)
    (log,) = last_run(store).steps
    assert len(log.retries) == len(log.retry_times) == 2
    assert [delay for _, delay in log.retry_times] == [7, 7]
    assert before - 0.01 <= log.retry_times[0][0] <= log.retry_times[1][0] <= time.time() + 0.01


def test_titles_and_needs_are_recorded(store):
    steps = [
        Step("a", run=lambda ctx: 1, repeat="safe", title="Do a"),
        Step("b", needs=["a"], run=lambda ctx: 1, repeat="safe", title="b"),
    ]
    Workflow("w", steps).run(store=store)
    assert [(log.step, log.title, log.needs) for log in last_run(store).steps] == [
        ("a", "Do a", ()), ("b", "", ("a",)),
    ]  # fmt: skip


def test_probes_of_skipped_steps_are_recorded_and_those_decided_by_records_are_not(store):
    steps = [
        Step("recorded", run=lambda ctx: 1, repeat="safe"),
        Step("probed", needs=["recorded"], probe=lambda ctx: done("there"), run=lambda ctx: 1),
    ]
    for _ in range(2):
        Workflow("w", steps).run(store=store)
    run = last_run(store)
    assert set(run.probes) == {"probed"}
    probe = run.probes["probed"]
    assert run.started - 0.01 <= probe.at <= time.time()
    assert probe.seconds >= 0
    assert probe.needs == ("recorded",)


def test_step_that_runs_after_all_is_no_longer_a_skipped_one(store):
    probes = [done("there"), absent(), absent()]
    steps = [
        Step("a", probe=lambda ctx: probes.pop(0), run=lambda ctx: {"n": 1}, repeat="safe"),
        Step("b", reads=["a"], run=lambda ctx: ctx.result("a"), repeat="safe"),
    ]
    Workflow("w", steps).run(store=store)
    run = last_run(store)
    assert (run.probes, run.skipped) == ({}, {})
    assert [log.step for log in run.steps] == ["a", "b"]


def test_last_progress_of_a_failed_step_is_recorded_without_repetitions(store):
    def fail(ctx):
        for number in range(100):
            ctx.progress(f"line {number}")
            ctx.progress(f"line {number}")
        raise ConnectionResetError("gone")

    with pytest.raises(HoldfastError):
        Workflow("w", [Step("a", run=fail, repeat="safe")]).run(store=store)
    (log,) = last_run(store).steps
    assert log.progress == tuple(f"line {number}" for number in range(80, 100))


def test_parameters_and_platform_are_recorded(store):
    secret = Secret("env:PASSWORD", "hunter2-hunter2")
    flow = Workflow("w", [Step("a", run=lambda ctx: 1, repeat="safe")])
    flow.run(store=store, parameters={"image": "x:1", "retries": 3, "login": secret})
    run = last_run(store)
    assert run.parameters == {"image": "x:1", "retries": "3", "login": "Secret('env:PASSWORD')"}
    assert run.platform.startswith("Python 3.")


@pytest.mark.parametrize("fails", [False, True])
def test_secret_that_a_step_registers_is_masked_in_the_parameters(store, tmp_path, fails):
    def register(ctx):
        ctx.secret("env:PASSWORD", "hunter2-hunter2")
        if fails:
            raise ConnectionResetError("gone")

    flow = Workflow("w", [Step("a", run=register, repeat="safe")])
    try:
        flow.run(store=store, parameters={"url": "https://me:hunter2-hunter2@host"})
    except HoldfastError:
        assert fails
    assert last_run(store).parameters == {"url": "https://me:•••@host"}


def test_failure_without_a_store_is_not_recorded(store):
    def fail(ctx):
        raise ConnectionResetError("gone")

    events = []
    flow = Workflow("w", [Step("a", run=fail, repeat="safe")])
    for each in (None, store):
        with pytest.raises(HoldfastError):
            flow.run(store=each, bus=EventBus(events.append))
    assert [event.recorded for event in events if isinstance(event, RunFailed)] == [False, True]
