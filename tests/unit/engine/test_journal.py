"""The journal: no intent is lost between threads, and no Ctrl-C comes between an outcome and the disk."""

from __future__ import annotations

import os
import signal
import threading

import pytest

from holdfast.engine import MemoryStore, Step, Workflow
from holdfast.engine.context import Context, Session
from holdfast.engine.examine import Examiner, Task
from holdfast.engine.interrupt import Interrupts
from holdfast.engine.journal import Journal, Outcome
from holdfast.engine.lock import NoLock
from holdfast.engine.record import Record, RunRecord
from holdfast.errors import CancelledError
from holdfast.events import Bus


def journal_of(store, interrupts=None):
    run = RunRecord(id="r", workflow="w", command="w")
    return Journal(store, "w", run, interrupts or Interrupts(threading.Event()))


def test_an_intent_that_comes_during_a_commit_is_not_lost():
    inside, go = threading.Event(), threading.Event()

    class Slow(MemoryStore):
        def commit(self, scope, records, forget=()):
            super().commit(scope, dict(records), forget)
            if "first" in records:
                inside.set()
                assert go.wait(10)

    step = Step("late", run=lambda ctx: None, repeat="safe")
    store = Slow()
    session = Session(Workflow("w", [step]).graph, None, Bus(), NoLock(), "r")
    examiner = Examiner(session, {}, b"k" * 32)
    task = Task(step, Context(session, step), "f", {}, None)
    journal = journal_of(store)
    journal.take(Outcome("first", record=Record(state="done", run="r")))
    flusher = threading.Thread(target=journal.flush)
    flusher.start()
    assert inside.wait(10)
    intender = threading.Thread(target=journal.intend, args=(examiner, [task]))
    intender.start()
    intender.join(0.2)  # it waits for the commit, or it has put its record where the commit forgets it
    go.set()
    flusher.join(10)
    intender.join(10)
    assert store.load("w")["late"].state == "intent"


def test_a_second_ctrl_c_during_the_last_write_loses_nothing():
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
        with pytest.raises(CancelledError):
            Workflow("w", [Step("x", run=effect, repeat="safe"), later]).run(store=store)
    finally:
        signal.signal(signal.SIGINT, before)
    assert store.load("w")["x"].state == "done"
    assert store.runs()[0].outcome == "interrupted"
