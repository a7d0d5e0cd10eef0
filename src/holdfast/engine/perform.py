"""Does one step: asks, decides, skips or has the effect, and says what became of it.

Runs on the coordinator or on a thread of its own. Not here: which step comes next (`schedule`).
"""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Any

import msgspec

from holdfast.engine import failure
from holdfast.engine.journal import Journal, Outcome, begun_before
from holdfast.engine.record import NOTHING, Record, StepLog, pack
from holdfast.engine.step import label
from holdfast.errors import CancelledError, ResultError
from holdfast.events import StepFailed, StepFinished, StepSkipped, StepStarted

if TYPE_CHECKING:
    from holdfast.engine.examine import Examiner, Task
    from holdfast.engine.interrupt import Interrupts
    from holdfast.engine.verdict import Verdict
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
        self._session.produce = self.produce

    def perform(self, task: Task) -> Outcome:
        """Skip or run a step. Errors come back in the outcome; only Ctrl-C passes through."""
        began = time.monotonic()
        try:
            return self._perform(task, began)
        except Exception as error:  # noqa: BLE001  a step may raise anything; it is told, not swallowed
            return self._failed(task, error, began)

    def produce(self, name: str, reader: str) -> None:
        """Have the result of a step that was found done: nobody kept it, and a later step reads it.

        The world is asked once more and may bring it along. Else the step is run again, if its author said
        what a second time means; on a guess it is not.
        """
        with self._producing, self._interrupts.acting():
            if name in self._session.results:
                return
            task = self._examiner.prepare(name)
            verdict = self._ask(task)
            if verdict is not None and verdict.state == "done" and verdict.result is not None:
                raw = self._session.results[name] = pack(name, verdict.result, self._session.vault)
                self._journal.take(Outcome(name, record=self._record(task, "done", 0.0, raw, adopted=True)))
                return
            if verdict is not None and verdict.state == "done" and task.step.repeat is None:
                raise _nobody_kept(name, reader)
            self._run_for_result(task, reader)
            if name not in self._session.results:
                raise _nobody_kept(name, reader)

    def _run_for_result(self, task: Task, reader: str) -> None:
        name, began = task.step.name, time.monotonic()
        self._go_on(task)
        self._journal.not_skipped(name)
        try:
            outcome = self._run(task, f"its result is not known, and {reader!r} reads it", began)
        except Exception as error:  # noqa: BLE001  a step may raise anything; the reader is told
            outcome = self._failed(task, error, began)
        self._journal.take(outcome)
        self._journal.flush()
        if outcome.error is not None:
            raise outcome.error
        self.produced.append(name)

    def _perform(self, task: Task, began: float) -> Outcome:
        step = task.step
        decision = self._examiner.decide(task, self._ask(task))
        if decision.action == "run":
            for name in step.reads:
                if name not in self._session.results:
                    self.produce(name, step.name)
            return self._run(task, decision.reason, began)
        adopted = decision.action == "adopt"
        raw = self._result_of_skipped(task, adopted=adopted)
        if step.name in self._session.graph.restored:
            step.restore(task.context, None if raw is None else _decode(raw))
        return self._skipped(task, decision.reason, began, raw, adopted=adopted)

    def _ask(self, task: Task) -> Verdict | None:
        if task.step.name not in self._session.graph.probed or task.step.repeat == "always":
            return None
        self._go_on(task)
        with self._interrupts.looking():
            return self._examiner.ask_patiently(task, self._patient())

    def _go_on(self, task: Task) -> None:
        """Raise if nothing new may begin; asked right before each effect, for a probe may have been slow."""
        if self._session.stop.is_set():
            raise CancelledError(f"stopped {self._interrupts.by}; {task.step.name!r} was left as it is")
        if self._session.halted:
            raise CancelledError(f"the run is ending; {task.step.name!r} was left as it is")

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
        if context.verdict is not None and context.verdict.state in {"done", "absent"}:
            # What is seen later is from this run, if nothing was there before it.
            task.stale = context.verdict.state == "done"
        if not task.intended and not looks:
            self._journal.intend(self._examiner, [task])
        if not self._session.silent:
            self._session.bus.emit(StepStarted(step=step.name, title=label(step)))
        if looks:
            with self._interrupts.looking():
                value = self._attempts(task)
        else:
            value = self._attempts(task)
        raw = self._kept(task, value)
        seconds = round(time.monotonic() - began, 6)
        note = self._session.vault.redact(context.noted or reason)
        record = None
        if not looks:
            record = self._record(task, "done", seconds, raw, note=note, adopted=task.adopted)
        log = self._log(task, "finished", seconds, note=note, reason=self._session.vault.redact(reason))
        if not self._session.silent:
            told = StepFinished(step=step.name, title=label(step), seconds=seconds, note=note)
            self._session.bus.emit(told)
        return Outcome(step.name, record=record, log=log, forgets=getattr(step, "forgets", ""))

    def _kept(self, task: Task, value: Any) -> msgspec.Raw:
        """What a step returned, there for its readers; of an attempt that failed, what the world shows."""
        step, session = task.step, self._session
        raw = pack(step.name, value, session.vault)
        if raw == NOTHING and not task.adopted and step.name in session.graph.readers:
            readers = ", ".join(map(repr, session.graph.readers[step.name]))
            raise ResultError(
                f"step {step.name!r} returned nothing, but {readers} reads its result",
                hint=f"Return from {step.name!r} what is read there, or drop it from `reads`.",
            )
        if raw != NOTHING or not task.adopted:
            session.results[step.name] = raw
        if task.adopted and step.name in session.graph.restored:
            step.restore(task.context, _decode(raw))
        return raw

    def _attempts(self, task: Task) -> Any:
        if task.step.policy is None:
            return self._attempt(task)
        return task.context.retry(task.step.policy).call(lambda: self._attempt(task))

    def _attempt(self, task: Task) -> Any:
        context, session = task.context, self._session
        if context.attempt and self._is_there(task):
            return context.verdict.result if context.verdict is not None else None
        if session.halted or session.stop.is_set():
            self._go_on(task)
        session.lock.check()
        context.attempt += 1
        return task.step.run(context)

    def _is_there(self, task: Task) -> bool:
        """Ask the world between two attempts: one that failed may have had its effect all the same."""
        verdict = self._ask(task)
        if verdict is None or verdict.state != "done" or task.stale:
            return False
        task.adopted = True
        if not task.context.noted:
            task.context.note(f"the attempt that failed had its effect: {verdict.reason or 'it is there'}")
        return True

    def _failed(self, task: Task, error: Exception, began: float) -> Outcome:
        step, seconds = task.step, round(time.monotonic() - began, 6)
        told = failure.told(step.name, error, self._session.vault)
        if isinstance(told, CancelledError) and not task.context.attempt:
            return _not_begun(task, told)
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
            retries=tuple(task.context.retries),
            at_least_once=task.step.repeat == "at-least-once",
            begun_before=task.record is not None and begun_before(task.record),
            **more,
        )

    def _log(self, task: Task, outcome: Any, seconds: float, **more: Any) -> StepLog:
        context = task.context
        return StepLog(
            step=task.step.name,
            outcome=outcome,
            at=time.time() - seconds,
            seconds=seconds,
            tries=context.attempt,
            retries=tuple(context.retries),
            at_least_once=task.step.repeat == "at-least-once",
            begun_before=task.record is not None and begun_before(task.record),
            **more,
        )


def _not_begun(task: Task, told: CancelledError) -> Outcome:
    """A step that was stopped before its effect is as it was: its intent is taken back."""
    name, before = task.step.name, task.record
    if not task.intended:
        return Outcome(name, error=told)
    return Outcome(name, record=before, error=told, forgets="" if before is not None else name)


def _nobody_kept(name: str, reader: str) -> ResultError:
    return ResultError(
        f"step {reader!r} reads the result of {name!r}, which was found done, and nobody kept that result",
        hint=f"Let the probe of {name!r} bring it along: done(…, result=…). If running it again does no harm "
        'say so: repeat="safe".',
    )
