"""The journal loses no intent between threads, and Ctrl-C does not interrupt a write."""

from __future__ import annotations

import os
import signal
import threading

import pytest

from holdfast.errors import OperationCancelledError
from holdfast.events import EventBus
from holdfast.workflow import MemoryStore, Step, Workflow, absent, done
from holdfast.workflow.inspector import StepInspector, StepTask
from holdfast.workflow.journal import Journal, StepOutcome
from holdfast.workflow.lock import NoLock
from holdfast.workflow.runner import InterruptHandler
from holdfast.workflow.scheduler import Scheduler
from holdfast.workflow.step import RunContext, StepContext
from holdfast.workflow.step_executor import StepExecutor
from holdfast.workflow.store import RunRecord, StepRecord


def journal_of(store, interrupts=None):
    run = RunRecord(id="r", workflow="w", command="w")
    return Journal(store, "w", run, interrupts or InterruptHandler(threading.Event()))


def test_intent_during_commit_is_not_lost():
    inside, go = threading.Event(), threading.Event()

    class Slow(MemoryStore):
        def commit(self, scope, records, forget=()):
            super().commit(scope, dict(records), forget)
            if "first" in records:
                inside.set()
                assert go.wait(10)

    step = Step("late", run=lambda ctx: None, repeat="safe")
    store = Slow()
    session = RunContext(Workflow("w", [step]).graph, None, EventBus(), NoLock(), "r")
    examiner = StepInspector(session, {}, b"k" * 32)
    task = StepTask(step, StepContext(session, step), "f", {}, None)
    journal = journal_of(store)
    journal.record_outcome(StepOutcome("first", record=StepRecord(state="done", run="r")))
    flusher = threading.Thread(target=journal.flush)
    flusher.start()
    assert inside.wait(10)
    intender = threading.Thread(target=journal.record_intents, args=(examiner, [task]))
    intender.start()
    intender.join(0.2)  # it waits for the commit, or it has put its record where the commit forgets it
    go.set()
    flusher.join(10)
    intender.join(10)
    assert store.load("w")["late"].state == "intent"


def test_second_ctrl_c_during_last_write_loses_nothing():
    class Interrupted(MemoryStore):
        def end(self, run, scope, records, forget=()):
            os.kill(os.getpid(), signal.SIGINT)
            super().end(run, scope, records, forget)

    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        store, ran = Interrupted(), []

        def effect(ctx):
            os.kill(os.getpid(), signal.SIGINT)
            ran.append(1)

        later = Step("later", needs=["x"], run=lambda ctx: None, repeat="safe")
        with pytest.raises(OperationCancelledError):
            Workflow("w", [Step("x", run=effect, repeat="safe"), later]).run(store=store)
    finally:
        signal.signal(signal.SIGINT, before)
    assert store.load("w")["x"].state == "done"
    assert store.runs()[0].outcome == "interrupted"


@pytest.mark.parametrize("last_step_runs", [True, False])
def test_step_that_forgets_an_earlier_one_makes_it_run_again(store, last_step_runs):
    """`up --wipe` wipes once for each completed run: its last step deletes the checkpoint of the first."""
    runs = []
    last = Step(
        "last",
        run=lambda ctx: None,
        needs=("wipe",),
        probe=None if last_step_runs else lambda ctx: done("exists"),
        repeat="safe" if last_step_runs else None,
        forgets="wipe",
    )

    def probe(ctx):
        return done("continues") if ctx.previous_result else absent("requested")

    wipe = Step("wipe", run=lambda ctx: runs.append(1) or {"wiped": True}, probe=probe)
    for _ in range(2):
        Workflow("w", [wipe, last]).run(store=store)
    assert len(runs) == 2


def test_skip_is_not_lost_while_another_is_removed():
    """A worker thread removes a skipped step that runs after all while the coordinator skips another one."""
    removers = []

    class Interleaved(dict):
        def setdefault(self, key, default=None):
            names = super().setdefault(key, default)
            if "a" in names:
                removers.append(threading.Thread(target=journal.remove_skip, args=("a",)))
                removers[0].start()
                removers[0].join(
                    0.2
                )  # it waits for the skip, or it removes the list that the skip is added to
            return names

    steps = [Step(name, run=lambda ctx: None, repeat="safe") for name in "ab"]
    context = RunContext(Workflow("w", steps).graph, None, EventBus(), NoLock(), "r")
    inspector, journal = StepInspector(context, {}, b"k" * 32), journal_of(MemoryStore())
    for step in steps:
        fingerprint = inspector.compute_fingerprint(step, {}, [])
        inspector.records[step.name] = StepRecord(state="done", run="r0", fingerprint=fingerprint)
    journal.run.skipped = Interleaved()
    executor = StepExecutor(inspector, journal, InterruptHandler(context.stop), None)
    Scheduler(inspector, executor, journal, 1).run()
    removers[0].join(10)
    assert journal.run.skipped == {"done in run r0": ["b"]}
