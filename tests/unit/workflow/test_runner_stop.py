"""A stopped run starts no further step and leaves nothing running."""

from __future__ import annotations

import sys
import threading

import pytest

from holdfast.errors import OperationCancelledError, StoreError, StoreFullError
from holdfast.events import StepFailed
from holdfast.retry import Policy, constant, testing_mode
from holdfast.workflow import (
    FileLock,
    MemoryStore,
    SQLiteStore,
    Step,
    StepRecord,
    Workflow,
    absent,
    done,
    unknown,
)

from .conftest import Make, World


def gated_probes(world: World, stop: threading.Event, *names: str) -> list[Step]:
    """Return steps whose probes are all running when the run is stopped."""
    gate = threading.Barrier(len(names), action=stop.set)

    def probe(ctx):
        gate.wait(10)
        return absent("not there")

    def run(name):
        return lambda ctx: world.made.append(name)

    return [Step(name, probe=probe, run=run(name)) for name in names]


@pytest.mark.parametrize("names", [("one",), ("one", "two")], ids=["alone", "two at the same time"])
def test_stop_during_probes_prevents_effects(store, world: World, names):
    stop = threading.Event()
    ended = []

    def go():
        try:
            Workflow("w", gated_probes(world, stop, *names)).run(store=store, stop=stop, bus=world.bus)
        except OperationCancelledError as error:
            ended.append(str(error))

    off_main = threading.Thread(target=go)
    off_main.start()
    off_main.join(20)
    assert world.made == []
    assert len(ended) == 1
    assert "stopped on request" in ended[0]
    assert world.of(StepFailed) == []
    store.open()
    assert store.load("w") == {}  # none of them has begun, so none is in flight
    assert store.runs()[0].outcome == "interrupted"


def test_stop_before_changed_step_keeps_its_record(store, world: World):
    stop = threading.Event()

    def flow(colour, probe):
        step = Step("x", inputs={"colour": colour}, probe=probe, run=lambda ctx: world.made.append(colour))
        return Workflow("w", [step])

    def stops(ctx):
        stop.set()
        return done("something is there")

    flow("red", lambda ctx: absent()).run(store=store)
    with pytest.raises(OperationCancelledError):
        flow("blue", stops).run(store=store, stop=stop)
    store.open()
    assert store.load("w")["x"].state == "done"
    flow("blue", lambda ctx: done("something is there")).run(store=store)
    assert world.made == ["red", "blue"]


def test_stop_during_unknown_probe_leaves_nothing_in_flight(store, world: World):
    stop = threading.Event()

    def probe(ctx):
        stop.set()
        return unknown("no answer")

    flow = Workflow(
        "w",
        [Step("x", probe=probe, run=lambda ctx: world.made.append("x"))],
        probe_policy=Policy(attempts=5, backoff=constant(600)),
    )
    with pytest.raises(OperationCancelledError):
        flow.run(store=store, stop=stop)
    store.open()
    assert store.load("w") == {}
    assert world.made == []


def test_stop_reason_is_reported(store):
    stop = threading.Event()
    stop.set()
    with pytest.raises(OperationCancelledError) as caught:
        Workflow("w", [Step("a", repeat="safe", run=lambda ctx: 1)]).run(store=store, stop=stop)
    assert "on request" in str(caught.value)
    assert "Ctrl-C" not in str(caught.value)


def test_store_failure_lets_running_steps_finish_and_releases_lock(tmp_path, world: World):
    """The process lives on: its next run must not find the lock held by the one before."""
    begun, go = threading.Event(), threading.Event()

    class Fills(MemoryStore):
        full = False

        def commit(self, scope, records, forget=()):
            if self.full:
                go.set()
                raise StoreFullError("the disk is full")
            super().commit(scope, records, forget)

    store = Fills()

    def fast(ctx):
        assert begun.wait(10)
        store.full = True

    def slow(ctx):
        begun.set()
        assert go.wait(10)
        world.made.append("slow")

    flow = Workflow("w", [Step("fast", repeat="safe", run=fast), Step("slow", repeat="safe", run=slow)])
    with pytest.raises(StoreFullError, match="the disk is full"):
        flow.run(store=store, lock=FileLock(tmp_path / "lock"))
    assert world.made == ["slow"]
    assert Workflow("w", [Make(world, "a")]).run(lock=FileLock(tmp_path / "lock")).changed == ("a",)


def test_store_failure_prevents_new_steps(tmp_path, world: World):
    probing, go = threading.Event(), threading.Event()

    class Fills(MemoryStore):
        full = False

        def commit(self, scope, records, forget=()):
            if self.full:
                raise StoreFullError("the disk is full")
            super().commit(scope, records, forget)

        def end(self, run, scope, records, forget=()):
            raise StoreFullError("the disk is full")

    store = Fills()

    def fast(ctx):
        assert probing.wait(10)
        store.full = True
        threading.Timer(0.3, go.set).start()  # after the coordinator has met the full disk

    def probe(ctx):
        probing.set()
        assert go.wait(10)
        return absent()

    slow = Step("slow", probe=probe, run=lambda ctx: world.made.append("slow"))
    with pytest.raises(StoreFullError) as caught:
        Workflow("w", [Step("fast", repeat="safe", run=fast), slow]).run(store=store)
    for thread in threading.enumerate():
        if thread.name == "holdfast slow":
            thread.join(10)
    assert world.made == []
    assert "the store could not be written" in caught.value.__notes__[0]


def test_system_exit_in_step_loses_nothing(store, lock, world: World):
    flow = Workflow(
        "w", [Make(world, "a"), Step("b", needs=["a"], repeat="safe", run=lambda ctx: sys.exit(3))]
    )
    with pytest.raises(SystemExit):
        flow.run(store=store, lock=lock)
    store.open()
    assert {name: record.state for name, record in store.load("w").items()} == {"a": "done", "b": "intent"}
    assert (store.runs()[0].outcome, store.runs()[0].error) == ("failed", "SystemExit: 3")


def test_removed_store_is_detected_before_next_effect(tmp_path, world: World):
    path = tmp_path / "state" / "s.db"

    def remove(ctx):
        for each in path.parent.glob("s.db*"):
            each.unlink()
        clock.advance(1)  # the store checks its file only every few milliseconds

    steps = [Step("remove", repeat="safe", run=remove), Make(world, "after", ("remove",))]
    with testing_mode() as clock, pytest.raises(StoreError, match="was removed or replaced during a run"):
        Workflow("w", steps).run(store=SQLiteStore(path))
    assert world.made == []
    assert Workflow("w", [steps[1].__class__(world, "after")]).run(store=SQLiteStore(path)).changed == (
        "after",
    )


def test_history_of_died_run_comes_from_records(store):
    from holdfast.workflow.journal import dead_run_record
    from holdfast.workflow.store import RunRecord

    run = RunRecord(id="r", workflow="w", command="w", started=100.0)
    records = {
        "mail": StepRecord(
            state="done", run="r", at=107.0, seconds=5.0, tries=2, at_least_once=True, retries=("refused",)
        ),
        "next": StepRecord(state="intent", run="r", at=107.5, at_least_once=True, begun_before=True),
        "old": StepRecord(state="done", run="before", at=90.0),
    }
    story = dead_run_record(run, records)
    assert (story.outcome, story.step, story.seconds) == ("died", "next", 7.5)
    first, second = story.steps
    assert (first.step, first.at, first.tries, first.retries) == ("mail", 102.0, 2, ("refused",))
    assert (second.outcome, second.at_least_once, second.begun_before) == ("in flight", True, True)
    assert first.at_least_once


def test_records_keep_run_history(store):
    tries = []

    def flaky(ctx):
        tries.append(1)
        if len(tries) == 1:
            raise ConnectionResetError("reset")

    policy = Policy(attempts=2, backoff=constant(0.0))
    Workflow("w", [Step("mail", repeat="at-least-once", run=flaky, policy=policy)]).run(store=store)
    store.open()
    record = store.load("w")["mail"]
    assert (record.at_least_once, record.retries) == (True, ("ConnectionResetError: reset",))
