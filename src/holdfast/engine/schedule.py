"""Which step comes next: independent ones at the same time, each one's intent on disk before it begins.

One coordinator decides and records. A single ready step runs on it; several run on threads.
Not here: doing a step (`perform`).
"""

from __future__ import annotations

import contextvars
import queue
import threading
import time
from collections import deque
from typing import TYPE_CHECKING, Any

from holdfast.engine import failure
from holdfast.engine.context import Context
from holdfast.engine.journal import Journal, Outcome
from holdfast.engine.record import StepLog
from holdfast.engine.step import label
from holdfast.events import StepFailed, StepSkipped

if TYPE_CHECKING:
    from collections.abc import Mapping

    from holdfast.engine.examine import Examiner, Task
    from holdfast.engine.perform import Performer
    from holdfast.engine.record import Record
    from holdfast.engine.step import Step

_NO_INPUTS: Mapping[str, Any] = {}


class Scheduler:
    """Walks the graph of one run to its end, or to the first failure."""

    def __init__(self, examiner: Examiner, performer: Performer, journal: Journal, workers: int) -> None:
        self._examiner = examiner
        self._performer = performer
        self._journal = journal
        self._workers = workers
        self._session = examiner.session
        self._graph = examiner.session.graph
        self._quick, self._blind = self._graph.quick, self._graph.blind
        # Names for what is asked for once a step: with thousands of them to skip, the way there counts.
        self._known, self._results = examiner.fingerprints, examiner.session.results
        self._fingerprint = examiner.digests.of
        self._stood: dict[str, tuple[str, list[str]]] = {}
        self._waiting: dict[str, int] = {}
        self._ready: deque[str] = deque()
        self._tasks: deque[Task] = deque()
        self._finished: queue.SimpleQueue[Outcome | BaseException] = queue.SimpleQueue()
        self.running = 0
        self.changed: list[str] = []
        self.failed: Outcome | None = None

    def walk(self) -> None:
        """Run until nothing is left, something fails, or the user says stop; let what is running end."""
        try:
            self._walk()
        except KeyboardInterrupt:
            raise  # at once: what is in the air is left behind
        except BaseException:
            self._drain()
            raise

    def _drain(self) -> None:
        """Let what is running end, and begin nothing more: only then may the lock go."""
        self._session.halted = True
        while self.running:
            outcome = self._finished.get()
            self.running -= 1
            if isinstance(outcome, Outcome):
                self._journal.take(outcome)

    def _walk(self) -> None:
        self._skip_what_stands()
        while True:
            self._examine_ready()
            self._launch()
            if self.running:
                self._journal.flush()
                outcome = self._finished.get()
                self.running -= 1
                self._take(outcome)
            elif not (self._ready or self._tasks) or self._stopping:
                return

    @property
    def _stopping(self) -> bool:
        return self.failed is not None or self._session.stop.is_set()

    def _skip_what_stands(self) -> None:
        """Skip, in one pass, all that a record alone decides; then see what waits for what."""
        records, quick, known = self._examiner.records, self._quick, self._known
        needs, steps, skipped = self._graph.needs, self._graph.steps, self._skipped_quickly
        for name in self._graph.order:
            record = records.get(name)
            if record is None or record.state != "done" or name not in quick:
                continue
            try:
                marks = [known[need] for need in needs[name]]
            except KeyError:
                continue
            skipped(name, steps[name], record, marks)
        for name in self._graph.order:
            if name not in known:
                self._waiting[name] = sum(need not in known for need in needs[name])
                if not self._waiting[name]:
                    self._ready.append(name)

    def _examine_ready(self) -> None:
        """Skip what needs no question, and make tasks of the rest."""
        ready, records, steps = self._ready, self._examiner.records, self._graph.steps
        known, needs = self._known, self._graph.needs
        while ready and not self._stopping:
            name = ready.popleft()
            record = records.get(name)
            if record is not None and record.state == "done" and name in self._quick:
                marks = [known[need] for need in needs[name]]
                if self._skipped_quickly(name, steps[name], record, marks):
                    self._release(name)
                    continue
            self._prepare(name)

    def _skipped_quickly(self, name: str, step: Step, record: Record, marks: list[str]) -> bool:
        """Skip a step without probe and restore if its record still holds."""
        if name in self._blind:
            fingerprint = self._fingerprint(step, _NO_INPUTS, marks)
        else:
            try:
                inputs = step.inputs(Context(self._session, step))
                fingerprint = self._fingerprint(step, inputs, marks)
            except Exception:  # noqa: BLE001  asked again and told the slow way
                return False
        if fingerprint != record.fingerprint or (record.reads and self._examiner.changed_reads(record)):
            return False
        self._known[name] = fingerprint
        self._results[name] = record.result
        reason, names = self._stood.get(record.run) or self._stood_since(record.run)
        names.append(name)
        if not self._session.silent:
            self._session.bus.emit(StepSkipped(step=name, title=step.title or name, reason=reason))
        return True

    def _stood_since(self, run: str) -> tuple[str, list[str]]:
        """The words for steps that an earlier run has done, and where their names are gathered."""
        reason = f"done in run {run}"
        self._stood[run] = reason, self._journal.run.skipped.setdefault(reason, [])
        return self._stood[run]

    def _prepare(self, name: str) -> None:
        try:
            self._tasks.append(self._examiner.prepare(name))
        except Exception as error:  # noqa: BLE001  `inputs` is the author's code
            self._fail(name, error)

    def _fail(self, name: str, error: Exception) -> None:
        told = failure.told(name, error, self._session.vault)
        log = StepLog(step=name, outcome="failed", at=time.time(), error=str(told), code=told.code)
        title = label(self._graph.steps[name])
        self._session.bus.emit(
            StepFailed(step=name, title=title, seconds=0.0, code=told.code, error=str(told))
        )
        self._take(Outcome(name, log=log, error=told))

    def _launch(self) -> None:
        """Put intents and waiting outcomes on disk in one commit, then begin."""
        if self._stopping or not self._tasks or self.running >= self._workers:
            return
        batch = [self._tasks.popleft() for _ in range(min(len(self._tasks), self._workers - self.running))]
        self._journal.intend(self._examiner, [task for task in batch if not self._may_be_skipped(task)])
        if len(batch) == 1 and not self.running:
            self._take(self._performer.perform(batch[0]))
            return
        for task in batch:
            self.running += 1
            context = contextvars.copy_context()
            threading.Thread(
                target=context.run,
                args=(self._on_thread, task),
                daemon=True,
                name=f"holdfast {task.step.name}",
            ).start()

    def _may_be_skipped(self, task: Task) -> bool:
        """Whether a step may well be skipped, or writes nothing: then its intent waits until it does act."""
        record = task.record
        if task.step.repeat == "always":
            return True
        return record is not None and record.state == "done" and record.fingerprint == task.fingerprint

    def _on_thread(self, task: Task) -> None:
        try:
            self._finished.put(self._performer.perform(task))
        except BaseException as error:  # noqa: BLE001  handed to the coordinator, which raises it
            self._finished.put(error)

    def _take(self, outcome: Outcome | BaseException) -> None:
        if isinstance(outcome, BaseException):
            raise outcome
        self._journal.take(outcome)
        if outcome.error is not None:
            self.failed = self.failed or outcome
            return
        if outcome.log is not None and self._graph.steps[outcome.name].repeat != "always":
            self.changed.append(outcome.name)
        self._release(outcome.name)

    def _release(self, name: str) -> None:
        waiting = self._waiting
        for other in self._graph.dependants[name]:
            waiting[other] -= 1
            if not waiting[other]:
                self._ready.append(other)
