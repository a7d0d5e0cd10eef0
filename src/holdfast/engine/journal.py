"""What a run writes down: intents before effects, outcomes after them, and its own story at the end.

Outcomes wait here until the next intent shares their commit, or until there is nothing to do but wait.
Not here: what is written (`record`) and where (`store`).
"""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

import msgspec

from holdfast.engine.record import NOTHING, Record, RunRecord, StepLog

if TYPE_CHECKING:
    from collections.abc import Iterable
    from collections.abc import Set as AbstractSet

    from holdfast.engine.examine import Examiner, Task
    from holdfast.engine.interrupt import Interrupts
    from holdfast.engine.store import Store


class Outcome(msgspec.Struct, gc=False):
    """What became of a step in this run."""

    name: str
    record: Record | None = None
    log: StepLog | None = None
    skipped: str = ""
    error: BaseException | None = None
    forgets: str = ""


class Journal:
    """The writing side of one run; may be used from any thread."""

    def __init__(self, store: Store, scope: str, run: RunRecord, interrupts: Interrupts) -> None:
        self.run = run
        self._store = store
        self._scope = scope
        self._interrupts = interrupts
        self._records: dict[str, Record] = {}
        self._forget: list[str] = []
        self._guard = threading.Lock()

    def intend(self, examiner: Examiner, tasks: Iterable[Task]) -> None:
        """Have the intents of these tasks on disk, with all that waited to be written."""
        with self._guard:
            for task in tasks:
                if not task.intended:
                    task.intended = True
                    self._records[task.step.name] = Record(
                        state="intent",
                        run=self.run.id,
                        fingerprint=task.fingerprint,
                        at=time.time(),
                        result=task.record.result if task.record is not None else NOTHING,
                        stale=task.stale,
                        inputs=examiner.marks(task),
                        at_least_once=task.step.repeat == "at-least-once",
                        begun_before=task.record is not None and begun_before(task.record),
                    )
            self._flush()

    def take(self, outcome: Outcome) -> None:
        """Note an outcome; it is on disk after the next flush."""
        with self._guard:
            if outcome.record is not None:
                self._records[outcome.name] = outcome.record
            if outcome.forgets:
                self._forget += [outcome.forgets]
            if outcome.log is not None:
                self.run.steps.append(outcome.log)
            if outcome.skipped:
                self.run.skipped.setdefault(outcome.skipped, []).append(outcome.name)

    def not_skipped(self, name: str) -> None:
        """A step that was skipped has run after all: strike it out of the story of what was skipped."""
        with self._guard:
            for reason, names in list(self.run.skipped.items()):
                if name in names:
                    names.remove(name)
                if not names:
                    del self.run.skipped[reason]

    def flush(self) -> None:
        """Have everything that was noted on disk."""
        with self._guard:
            self._flush()

    def end(self, *, forget: Iterable[str] = (), strike: AbstractSet[str] = frozenset()) -> None:
        """Have the last outcomes and the story of the run on disk, in one commit.

        `strike` names steps whose results must not stay there; that they are done stays.
        """
        with self._guard:
            if strike:
                there = {**self._store.load(self._scope), **self._records}
                for name in strike & there.keys():
                    self._records[name] = msgspec.structs.replace(there[name], result=NOTHING, adopted=True)
            gone = [*self._forget, *forget]
            kept = {name: record for name, record in self._records.items() if name not in set(gone)}
            self._interrupts.begin_write()
            try:
                self._store.end(self.run, self._scope, kept, gone)
            finally:
                self._interrupts.end_write()

    def _flush(self) -> None:
        if self._records or self._forget:
            self._interrupts.begin_write()
            try:
                self._store.commit(self._scope, self._records, self._forget)
                self._records, self._forget = {}, []
            finally:
                self._interrupts.end_write()


def begun_before(record: Record) -> bool:
    """Whether the run that made a record died or failed in its step, after it had begun."""
    return record.state == "intent" or (record.state == "failed" and record.tries > 0)


def died(run: RunRecord, records: dict[str, Record]) -> RunRecord:
    """The story of a run that never ended, as far as the records of its steps tell it.

    What it skipped is not among them. It lived at least until the last of them was written.
    """
    own = {name: record for name, record in records.items() if record.run == run.id}
    logs = sorted((_log(name, record) for name, record in own.items()), key=lambda log: log.at)
    last = max((record.at for record in own.values()), default=run.started)
    return msgspec.structs.replace(
        run,
        outcome="died",
        seconds=round(max(0.0, last - run.started), 6),
        steps=logs,
        step=next((log.step for log in logs if log.outcome == "in flight"), ""),
        error="the process ended without a word",
        code="died",
    )


def _log(name: str, record: Record) -> StepLog:
    """What a record tells of the run that made it; an intent was made as the step began."""
    words = {"done": "finished", "failed": "failed", "intent": "in flight"}
    return msgspec.convert(
        {
            "step": name,
            "outcome": words[record.state],
            "at": record.at - record.seconds,
            "seconds": record.seconds,
            "tries": record.tries,
            "note": record.note,
            "error": record.error,
            "code": record.code,
            "retries": record.retries,
            "at_least_once": record.at_least_once,
            "begun_before": record.begun_before,
        },
        StepLog,
    )
