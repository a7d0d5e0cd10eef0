"""Does one step: asks, decides, skips or has the effect, and says what became of it.

Runs on the coordinator or on a thread of its own. Not here: which step comes next (`schedule`).
"""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Any

import msgspec

from holdfast.engine import failure
from holdfast.engine.context import NotYetError
from holdfast.engine.journal import Journal, Outcome
from holdfast.engine.record import NOTHING, Record, StepLog, pack
from holdfast.engine.step import label
from holdfast.errors import CancelledError, ResultError
from holdfast.events import StepFailed, StepFinished, StepSkipped, StepStarted

if TYPE_CHECKING:
    from holdfast.engine.examine import Examiner, Task
    from holdfast.engine.interrupt import Interrupts
    from holdfast.retry import Policy

_decode = msgspec.json.Decoder().decode


class Performer:
    """Takes tasks to their outcomes."""

    def __init__(
        self, examiner: Examiner, journal: Journal, interrupts: Interrupts, patience: Policy | None
    ) -> None:
        self._examiner = examiner
        self._session = examiner.session
        self._journal = journal
        self._interrupts = interrupts
        self._patience = patience
        self._producing = threading.RLock()
        self.produced: list[str] = []

    def perform(self, task: Task) -> Outcome:
        """Skip or run a step. Errors come back in the outcome; only Ctrl-C passes through."""
        began = time.monotonic()
        try:
            while True:
                try:
                    return self._perform(task, began)
                except NotYetError as missing:
                    self.produce(str(missing.args[0]), task.step.name)
        except Exception as error:  # noqa: BLE001  a step may raise anything; it is told, not swallowed
            return self._failed(task, error, began)

    def produce(self, name: str, reader: str) -> None:
        """Run a step again that was found done, for its result: nobody kept it, and a later step reads it."""
        with self._producing:
            if name in self._session.results:
                return
            task = self._examiner.prepare(name)
            self._examiner.ask(task)
            reason = f"its result is not known, and {reader!r} reads it"
            outcome = self._run(task, reason, time.monotonic())
            self._journal.take(outcome)
            self._journal.flush()
            self.produced.append(name)

    def _perform(self, task: Task, began: float) -> Outcome:
        step = task.step
        verdict = None
        if step.name in self._session.graph.probed and step.repeat != "always":
            with self._interrupts.looking():
                verdict = self._examiner.ask_patiently(task, self._patient())
        decision = self._examiner.decide(task, verdict)
        if decision.action == "run":
            return self._run(task, decision.reason, began)
        adopted = decision.action == "adopt"
        raw = self._result_of_skipped(task, adopted=adopted)
        if step.name in self._session.graph.restored:
            step.restore(task.context, None if raw is None else _decode(raw))
        return self._skipped(task, decision.reason, began, raw, adopted=adopted)

    def _patient(self) -> Policy:
        if self._patience is None:
            from holdfast.engine.examine import default_patience

            self._patience = default_patience()
        return self._patience

    def _result_of_skipped(self, task: Task, *, adopted: bool) -> msgspec.Raw | None:
        """What a skipped step returned; None where nobody knows."""
        seen = task.context.verdict.result if task.context.verdict is not None else None
        record = task.record
        if seen is not None:
            return pack(task.step.name, seen, self._session.vault)
        if adopted or record is None:
            return None
        return None if record.adopted and record.result == NOTHING else record.result

    def _skipped(
        self, task: Task, reason: str, began: float, raw: msgspec.Raw | None, *, adopted: bool
    ) -> Outcome:
        step, reason = task.step, self._session.vault.redact(reason)
        seconds = round(time.monotonic() - began, 6)
        if raw is not None:
            self._session.results[step.name] = raw
        record = None
        if adopted or task.intended:
            record = self._record(task, "done", seconds, raw or NOTHING, adopted=True)
        self._session.bus.emit(StepSkipped(step=step.name, title=label(step), reason=reason, seconds=seconds))
        return Outcome(step.name, record=record, skipped=reason, forgets=getattr(step, "forgets", ""))

    def _run(self, task: Task, reason: str, began: float) -> Outcome:
        step, context = task.step, task.context
        looks = step.repeat == "always"
        if context.verdict is not None and context.verdict.state == "done":
            task.stale = True
        if not task.intended and not looks:
            self._journal.intend(self._examiner, [task])
        self._session.bus.emit(StepStarted(step=step.name, title=label(step)))
        if looks:
            with self._interrupts.looking():
                value = self._attempts(task)
        else:
            value = self._attempts(task)
        raw = pack(step.name, value, self._session.vault)
        if raw == NOTHING and step.name in self._session.graph.readers:
            readers = ", ".join(map(repr, self._session.graph.readers[step.name]))
            raise ResultError(f"step {step.name!r} returned nothing, but {readers} reads its result")
        self._session.results[step.name] = raw
        seconds = round(time.monotonic() - began, 6)
        note = self._session.vault.redact(context.noted or reason)
        record = None if looks else self._record(task, "done", seconds, raw, note=note)
        log = self._log(task, "finished", seconds, note=note, reason=self._session.vault.redact(reason))
        self._session.bus.emit(StepFinished(step=step.name, title=label(step), seconds=seconds, note=note))
        return Outcome(step.name, record=record, log=log, forgets=getattr(step, "forgets", ""))

    def _attempts(self, task: Task) -> Any:
        step, context = task.step, task.context

        def attempt() -> Any:
            context.attempt += 1
            self._session.lock.check()
            return step.run(context)

        if step.policy is None:
            return attempt()
        return context.retry(step.policy).call(attempt)

    def _failed(self, task: Task, error: Exception, began: float) -> Outcome:
        step, seconds = task.step, round(time.monotonic() - began, 6)
        told = failure.told(step.name, error, self._session.vault)
        text = str(told)
        record = None
        # A step that was stopped stays in flight: nobody knows how far it got, and its probe will tell.
        if task.intended and not isinstance(told, CancelledError):
            result = task.record.result if task.record is not None else NOTHING
            record = self._record(
                task, "failed", seconds, result, stale=task.stale, error=text, code=told.code
            )
        log = self._log(task, "failed", seconds, error=text, code=told.code)
        self._session.bus.emit(
            StepFailed(step=step.name, title=label(step), seconds=seconds, code=told.code, error=text)
        )
        return Outcome(step.name, record=record, log=log, error=told)

    def _record(self, task: Task, state: Any, seconds: float, result: msgspec.Raw, **more: Any) -> Record:
        return Record(
            state=state,
            run=self._journal.run.id,
            fingerprint=task.fingerprint,
            at=time.time(),
            seconds=seconds,
            tries=task.context.attempt,
            result=result,
            inputs=self._examiner.marks(task),
            reads=self._examiner.read_marks(task.context),
            **more,
        )

    def _log(self, task: Task, outcome: Any, seconds: float, **more: Any) -> StepLog:
        context, before = task.context, task.record
        return StepLog(
            step=task.step.name,
            outcome=outcome,
            at=time.time() - seconds,
            seconds=seconds,
            tries=context.attempt,
            retries=tuple(context.retries),
            at_least_once=task.step.repeat == "at-least-once",
            begun_before=before is not None and (before.state == "intent" or _failed_inside(before)),
            **more,
        )


def _failed_inside(record: Record) -> bool:
    return record.state == "failed" and record.tries > 0
