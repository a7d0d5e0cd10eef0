"""A failed run is resumed: finished steps are skipped, the others run."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import pytest

from holdfast.errors import (
    LockLostError,
    OperationCancelledError,
    PermanentError,
    StepError,
    StepStateUnknownError,
    TemporaryError,
)
from holdfast.events import (
    RetryScheduled,
    RunFailed,
    RunFinished,
    RunStarted,
    StepFinished,
    StepSkipped,
    StepStarted,
)
from holdfast.retry import Policy, constant, testing_mode
from holdfast.workflow import MemoryStore, SQLiteStore, Step, Workflow, absent, done, partial, unknown

from .conftest import Make, World

if TYPE_CHECKING:
    from holdfast.workflow import FileLock


def test_second_run_does_nothing(chain, store, lock, world: World):
    first = chain.run(store=store, lock=lock, bus=world.bus)
    assert sorted(first.changed) == ["a", "b", "c", "d"]
    assert world.made.index("a") < world.made.index("b") < world.made.index("c")
    second = chain.run(store=store, lock=lock, bus=world.bus)
    assert second.changed == ()
    assert second.skipped == dict.fromkeys("abcd", "it is there")
    assert len(world.made) == 4
    assert [type(e) for e in world.events if isinstance(e, RunStarted | RunFinished)] == [
        RunStarted, RunFinished, RunStarted, RunFinished,
    ]  # fmt: skip


def test_works_without_store_using_probes(chain, world: World):
    chain.run()
    assert chain.run().changed == ()
    del world.things["b"]
    assert chain.run().changed == ("b",)


def test_drift_reruns_checkpointed_step(chain, store, world: World):
    chain.run(store=store)
    del world.things["b"]
    again = chain.run(store=store, bus=world.bus)
    assert again.changed == ("b",)
    assert [e.note for e in world.of(StepFinished)] == ["drift: it is not there"]


def test_rerun_continues_after_failure(store, world: World):
    broken = [True]

    def fragile(ctx):
        if broken:
            raise OSError("no route")
        world.made.append("fragile")

    flow = Workflow("w", [Make(world, "a"), Step("fragile", needs=["a"], run=fragile, repeat="safe")])
    with pytest.raises(StepError, match="no route") as caught:
        flow.run(store=store, bus=world.bus)
    assert isinstance(caught.value.__cause__, OSError)
    assert caught.value.exit_code == 1
    assert world.of(RunFailed)[0].step == "fragile"
    broken.clear()
    assert flow.run(store=store).changed == ("fragile",)
    assert world.made == ["a", "fragile"]


def test_holdfast_error_is_raised_unchanged(store):
    def refuse(ctx):
        raise PermanentError("no such image", hint="build it")

    flow = Workflow("w", [Step("x", run=refuse, repeat="safe")])
    with pytest.raises(PermanentError, match="no such image"):
        flow.run(store=store)


def test_failure_stops_later_steps_and_lets_running_ones_finish(store, world: World):
    begun, go = threading.Event(), threading.Event()

    def slow(ctx):
        begun.set()
        assert go.wait(10)
        world.made.append("slow")

    def fails(ctx):
        assert begun.wait(10)
        go.set()
        raise TemporaryError("away")

    steps = [Step("slow", run=slow, repeat="safe"), Step("fails", run=fails, repeat="safe")]
    flow = Workflow("w", [*steps, Make(world, "after", ("slow", "fails"))])
    with pytest.raises(TemporaryError, match="away"):
        flow.run(store=store)
    assert world.made == ["slow"]
    store.open()
    assert store.load("w")["slow"].state == "done"
    assert store.load("w")["fails"].state == "failed"


def test_independent_steps_run_concurrently(store):
    barrier = threading.Barrier(3)
    steps = [Step(name, run=lambda ctx: barrier.wait(10) and None, repeat="safe") for name in "xyz"]
    Workflow("w", steps).run(store=store)  # each waits for the two others


def test_worker_count_limits_concurrency(store):
    busy, most, guard = [0], [0], threading.Lock()

    def work(ctx):
        with guard:
            busy[0] += 1
            most[0] = max(most[0], busy[0])
        with guard:
            busy[0] -= 1

    Workflow("w", [Step(f"s{i}", run=work, repeat="safe") for i in range(20)], workers=2).run(store=store)
    assert most[0] <= 2


def test_in_flight_step_found_done_is_not_repeated(store, world: World):
    def dies(ctx):
        world.things["x"] = 1
        world.made.append("x")
        raise KeyboardInterrupt

    probe = {"probe": lambda ctx: done("there") if "x" in world.things else absent()}
    with pytest.raises(OperationCancelledError):
        Workflow("w", [Step("x", run=dies, **probe)]).run(store=store)
    result = Workflow("w", [Step("x", run=dies, **probe)]).run(store=store)
    assert result.changed == ()
    assert "done before the earlier run ended" in result.skipped["x"]
    assert world.made == ["x"]


def test_unknown_probe_is_retried_then_fails_as_temporary(store, world: World):
    asked = []

    def probe(ctx):
        asked.append(1)
        return unknown("the API does not answer")

    patience = Policy(attempts=5, backoff=constant(1))
    step = Step("x", run=lambda ctx: world.made.append("x"), probe=probe)
    with (
        testing_mode() as clock,
        pytest.raises(StepStateUnknownError, match="the API does not answer") as caught,
    ):
        Workflow("w", [step], probe_policy=patience).run(store=store, bus=world.bus)
    assert caught.value.exit_code == 1
    assert world.made == []
    assert len(asked) > 3
    assert clock.sleeps
    assert world.of(RetryScheduled)


def test_probe_connection_error_is_retried(store, world: World):
    answers = iter([ConnectionRefusedError("no"), ConnectionRefusedError("no"), absent()])

    def probe(ctx):
        answer = next(answers)
        if isinstance(answer, Exception):
            raise answer
        return answer

    with testing_mode():
        Workflow("w", [Step("x", run=lambda ctx: world.made.append("x"), probe=probe)]).run(store=store)
    assert world.made == ["x"]


def test_run_receives_probe_result(store):
    seen = []

    def run(ctx):
        seen.append(
            (ctx.probe_result.state, ctx.probe_result.reason, ctx.in_flight, ctx.attempt, ctx.previous_result)
        )
        return {"n": len(seen)}

    flow = Workflow("w", [Step("x", run=run, probe=lambda ctx: partial("half"))])
    flow.run(store=store)
    flow.run(store=store)
    assert seen == [("partial", "half", False, 1, None), ("partial", "half", False, 1, {"n": 1})]


def test_read_only_step_always_runs_and_is_not_recorded(store):
    count = []
    flow = Workflow("w", [Step("look", run=lambda ctx: count.append(1), repeat="always")])
    assert flow.run(store=store).changed == ()
    flow.run(store=store)
    assert len(count) == 2
    store.open()
    assert store.load("w") == {}


def test_stop_from_other_thread_acts_like_ctrl_c(store, world: World):
    stop = threading.Event()
    flow = Workflow("w", [Step("a", run=lambda ctx: stop.set(), repeat="safe"), Make(world, "b", ("a",))])
    with pytest.raises(OperationCancelledError):
        flow.run(store=store, stop=stop)
    assert world.made == []
    assert flow.run(store=store).changed == ("b",)


def test_lock_is_checked_before_every_effect(store, lock: FileLock, world: World):
    def steals(ctx):
        lock.path.unlink()

    flow = Workflow("w", [Step("steals", run=steals, repeat="safe"), Make(world, "b", ("steals",))])
    with pytest.raises(LockLostError, match="removed or replaced"):
        flow.run(store=store, lock=lock)
    assert world.made == []
    assert flow.run(store=store, lock=lock).changed == ("b",)


def test_forget_restarts_after_success_and_continues_after_failure(store, world: World):
    fail = [True]

    def second(ctx):
        if fail:
            fail.clear()
            raise TemporaryError("once")
        world.made.append("second")

    first = Step("first", run=lambda ctx: world.made.append("first"), repeat="safe")
    flow = Workflow(
        "w", [first, Step("second", needs=["first"], run=second, repeat="safe")], forget_on_success=True
    )
    with pytest.raises(TemporaryError):
        flow.run(store=store)
    flow.run(store=store)
    assert world.made == ["first", "second"]
    flow.run(store=store)
    assert world.made == ["first", "second"] * 2


def test_steps_from_functions(store):
    flow = Workflow("w")

    @flow.step(repeat="safe")
    def read_it(ctx):
        return {"n": 1}

    @flow.step("double", needs=["read-it"], repeat="safe")
    def whatever(ctx):
        return ctx.result("read-it")["n"] * 2

    assert flow.run(store=store).result("double") == 2


def test_memory_store_persists_between_runs(world: World):
    store = MemoryStore()
    flow = Workflow("w", [Step("x", run=lambda ctx: world.made.append("x"), repeat="safe")])
    flow.run(store=store)
    flow.run(store=store)
    assert world.made == ["x"]
    assert [run.outcome for run in store.runs()] == ["finished", "finished"]


def test_skipped_steps_have_reason(chain, store, world: World):
    chain.run(store=store)
    chain.run(store=store, bus=world.bus)
    assert {(e.step, e.reason) for e in world.of(StepSkipped)} == {(n, "it is there") for n in "abcd"}
    assert not world.of(StepStarted)


def test_one_commit_per_step_in_chain(tmp_path):
    store = SQLiteStore(tmp_path / "s.db")
    names = [f"s{i:03}" for i in range(100)]
    pairs = zip(names, [None, *names], strict=False)
    steps = [Step(n, needs=[p] if p else [], run=lambda ctx: {"n": 1}, repeat="safe") for n, p in pairs]
    Workflow("w", steps).run(store=store)
    assert store.commit_count <= 110


def test_one_commit_per_probed_step_in_chain(tmp_path, world: World):
    store = SQLiteStore(tmp_path / "s.db")
    names = [f"s{i:03}" for i in range(100)]
    steps = [Make(world, n, (p,) if p else ()) for n, p in zip(names, [None, *names], strict=False)]
    Workflow("w", steps).run(store=store)
    assert store.commit_count <= 110
    Workflow("w", steps).run(store=store)
    assert store.commit_count <= 113  # skipping writes nothing
