"""A run that failed is run again: what stands is skipped, what does not is done."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import pytest

from holdfast.engine import MemoryStore, SQLiteStore, Step, Workflow, absent, done, partial, unknown
from holdfast.errors import (
    CancelledError,
    LockLostError,
    PermanentError,
    StepError,
    TemporaryError,
    UnknownStateError,
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

from .conftest import Make, World

if TYPE_CHECKING:
    from holdfast.engine import FileLock


def test_does_everything_once_and_then_nothing(chain, store, lock, world: World):
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


def test_works_without_a_store_by_its_probes_alone(chain, world: World):
    chain.run()
    assert chain.run().changed == ()
    del world.things["b"]
    assert chain.run().changed == ("b",)


def test_drift_runs_a_step_again_though_its_checkpoint_says_done(chain, store, world: World):
    chain.run(store=store)
    del world.things["b"]
    again = chain.run(store=store, bus=world.bus)
    assert again.changed == ("b",)
    assert [e.note for e in world.of(StepFinished)] == ["drift: it is not there"]


def test_a_failure_keeps_what_was_done_and_the_next_run_goes_on(store, world: World):
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


def test_an_error_of_the_tree_is_raised_as_itself(store):
    def refuse(ctx):
        raise PermanentError("no such image", hint="build it")

    flow = Workflow("w", [Step("x", run=refuse, repeat="safe")])
    with pytest.raises(PermanentError, match="no such image"):
        flow.run(store=store)


def test_a_failure_stops_later_steps_but_lets_running_ones_finish(store, world: World):
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


def test_independent_steps_run_at_the_same_time(store):
    barrier = threading.Barrier(3)
    steps = [Step(name, run=lambda ctx: barrier.wait(10) and None, repeat="safe") for name in "xyz"]
    Workflow("w", steps).run(store=store)  # each waits for the two others


def test_no_more_steps_at_once_than_workers(store):
    busy, most, guard = [0], [0], threading.Lock()

    def work(ctx):
        with guard:
            busy[0] += 1
            most[0] = max(most[0], busy[0])
        with guard:
            busy[0] -= 1

    Workflow("w", [Step(f"s{i}", run=work, repeat="safe") for i in range(20)], workers=2).run(store=store)
    assert most[0] <= 2


def test_in_flight_and_done_is_resolved_without_a_second_effect(store, world: World):
    def dies(ctx):
        world.things["x"] = 1
        world.made.append("x")
        raise KeyboardInterrupt

    probe = {"probe": lambda ctx: done("there") if "x" in world.things else absent()}
    with pytest.raises(CancelledError):
        Workflow("w", [Step("x", run=dies, **probe)]).run(store=store)
    result = Workflow("w", [Step("x", run=dies, **probe)]).run(store=store)
    assert result.changed == ()
    assert "it was done when the earlier run ended" in result.skipped["x"]
    assert world.made == ["x"]


def test_resolve_is_asked_instead_of_the_probe_after_a_crash(store, world: World):
    class Odd(Step):
        name = "odd"

        def probe(self, ctx):
            return absent("the probe cannot see it")

        def resolve(self, ctx):
            return done("the log says so", result={"id": 7})

        def run(self, ctx):
            world.made.append("odd")
            raise KeyboardInterrupt

    with pytest.raises(CancelledError):
        Workflow("w", [Odd()]).run(store=store)
    outcome = Workflow("w", [Odd()]).run(store=store)
    assert world.made == ["odd"]
    assert outcome.result("odd") == {"id": 7}


def test_unknown_waits_then_fails_as_temporary_and_acts_on_nothing(store, world: World):
    asked = []

    def probe(ctx):
        asked.append(1)
        return unknown("the API does not answer")

    patience = Policy(attempts=5, backoff=constant(1))
    step = Step("x", run=lambda ctx: world.made.append("x"), probe=probe)
    with testing_mode() as clock, pytest.raises(UnknownStateError, match="the API does not answer") as caught:
        Workflow("w", [step], patience=patience).run(store=store, bus=world.bus)
    assert caught.value.exit_code == 1
    assert world.made == []
    assert len(asked) > 3
    assert clock.slept
    assert world.of(RetryScheduled)


def test_a_probe_that_cannot_connect_is_asked_again(store, world: World):
    answers = iter([ConnectionRefusedError("no"), ConnectionRefusedError("no"), absent()])

    def probe(ctx):
        answer = next(answers)
        if isinstance(answer, Exception):
            raise answer
        return answer

    with testing_mode():
        Workflow("w", [Step("x", run=lambda ctx: world.made.append("x"), probe=probe)]).run(store=store)
    assert world.made == ["x"]


def test_run_is_told_what_the_probe_saw(store):
    seen = []

    def run(ctx):
        seen.append((ctx.verdict.state, ctx.verdict.reason, ctx.in_flight, ctx.attempt, ctx.previous))
        return {"n": len(seen)}

    flow = Workflow("w", [Step("x", run=run, probe=lambda ctx: partial("half"))])
    flow.run(store=store)
    flow.run(store=store)
    assert seen == [("partial", "half", False, 1, None), ("partial", "half", False, 1, {"n": 1})]


def test_a_step_that_only_looks_runs_every_time_and_is_not_recorded(store):
    count = []
    flow = Workflow("w", [Step("look", run=lambda ctx: count.append(1), repeat="always")])
    assert flow.run(store=store).changed == ()
    flow.run(store=store)
    assert len(count) == 2
    store.open()
    assert store.load("w") == {}


def test_stop_from_another_thread_is_like_ctrl_c(store, world: World):
    stop = threading.Event()
    flow = Workflow("w", [Step("a", run=lambda ctx: stop.set(), repeat="safe"), Make(world, "b", ("a",))])
    with pytest.raises(CancelledError):
        flow.run(store=store, stop=stop)
    assert world.made == []
    assert flow.run(store=store).changed == ("b",)


def test_the_lock_is_checked_before_every_effect(store, lock: FileLock, world: World):
    def steals(ctx):
        lock.path.unlink()

    flow = Workflow("w", [Step("steals", run=steals, repeat="safe"), Make(world, "b", ("steals",))])
    with pytest.raises(LockLostError, match="removed or replaced"):
        flow.run(store=store, lock=lock)
    assert world.made == []
    assert flow.run(store=store, lock=lock).changed == ("b",)


def test_forget_starts_anew_after_a_finish_but_goes_on_after_a_failure(store, world: World):
    fail = [True]

    def second(ctx):
        if fail:
            fail.clear()
            raise TemporaryError("once")
        world.made.append("second")

    first = Step("first", run=lambda ctx: world.made.append("first"), repeat="safe")
    flow = Workflow("w", [first, Step("second", needs=["first"], run=second, repeat="safe")], forget=True)
    with pytest.raises(TemporaryError):
        flow.run(store=store)
    flow.run(store=store)
    assert world.made == ["first", "second"]
    flow.run(store=store)
    assert world.made == ["first", "second"] * 2


def test_steps_are_made_from_functions_too(store):
    flow = Workflow("w")

    @flow.step(repeat="safe")
    def read_it(ctx):
        return {"n": 1}

    @flow.step("double", needs=["read-it"], repeat="safe")
    def whatever(ctx):
        return ctx.result("read-it")["n"] * 2

    assert flow.run(store=store).result("double") == 2


def test_a_memory_store_remembers_between_runs_of_one_process(world: World):
    store = MemoryStore()
    flow = Workflow("w", [Step("x", run=lambda ctx: world.made.append("x"), repeat="safe")])
    flow.run(store=store)
    flow.run(store=store)
    assert world.made == ["x"]
    assert [run.outcome for run in store.runs()] == ["finished", "finished"]


def test_skipped_steps_say_why(chain, store, world: World):
    chain.run(store=store)
    chain.run(store=store, bus=world.bus)
    assert {(e.step, e.reason) for e in world.of(StepSkipped)} == {(n, "it is there") for n in "abcd"}
    assert not world.of(StepStarted)


def test_one_commit_a_step_on_a_chain(tmp_path):
    store = SQLiteStore(tmp_path / "s.db")
    names = [f"s{i:03}" for i in range(100)]
    pairs = zip(names, [None, *names], strict=False)
    steps = [Step(n, needs=[p] if p else [], run=lambda ctx: {"n": 1}, repeat="safe") for n, p in pairs]
    Workflow("w", steps).run(store=store)
    assert store.commits <= 110


def test_one_commit_a_step_on_a_chain_with_probes(tmp_path, world: World):
    store = SQLiteStore(tmp_path / "s.db")
    names = [f"s{i:03}" for i in range(100)]
    steps = [Make(world, n, (p,) if p else ()) for n, p in zip(names, [None, *names], strict=False)]
    Workflow("w", steps).run(store=store)
    assert store.commits <= 110
    Workflow("w", steps).run(store=store)
    assert store.commits <= 113  # skipping writes nothing
