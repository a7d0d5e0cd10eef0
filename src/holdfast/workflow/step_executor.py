"""Executes one step: probe, decide, skip or run with retries, and return the outcome."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Any

import msgspec

from holdfast.errors import HoldfastError, OperationCancelledError, StepError, StepResultError
from holdfast.events import StepFailed, StepFinished, StepSkipped, StepStarted
from holdfast.workflow.journal import Journal, StepOutcome
from holdfast.workflow.step import display_title, has_hook, required_steps
from holdfast.workflow.store import NULL_RESULT, ProbeLog, encode_result

if TYPE_CHECKING:
    from holdfast.retry import Policy
    from holdfast.workflow.inspector import StepInspector, StepTask
    from holdfast.workflow.runner import InterruptHandler
    from holdfast.workflow.secrets import SecretRedactor
    from holdfast.workflow.step import ProbeResult


def _to_holdfast_error(step: str, error: Exception, redactor: SecretRedactor) -> HoldfastError:
    """Return a `HoldfastError` as it is and any other error as `StepError`; secrets are masked in both."""
    if not isinstance(error, HoldfastError):
        message = f"step {step!r} failed: {type(error).__name__}: {str(error).strip() or 'no message'}"
        notes = getattr(error, "__notes__", ())
        error = StepError(message, cause=error)
        for note in notes:
            error.add_note(note)
    # Masks what is displayed and stored; `__cause__` keeps its original text.
    error.args = tuple(redactor.redact(part) if isinstance(part, str) else part for part in error.args)
    error.message, error.hint = redactor.redact(error.message), redactor.redact(error.hint)
    if hasattr(error, "__notes__"):
        error.__notes__ = [redactor.redact(note) for note in error.__notes__]
    return error


_decode = msgspec.json.Decoder().decode


class StepExecutor:
    """Executes single steps; used from the coordinator and from worker threads."""

    def __init__(
        self,
        inspector: StepInspector,
        journal: Journal,
        interrupts: InterruptHandler,
        probe_policy: Policy | None,
    ) -> None:
        self._inspector = inspector
        self._run_context = inspector.run_context
        self._redact = inspector.run_context.redactor.redact
        self._emit = inspector.run_context.bus.emit
        self._journal = journal
        self._interrupts = interrupts
        self._probe_policy = probe_policy
        # One producer at a time, or two readers would run the same step twice. Reentrant: the step may itself
        # read a result that has to be produced.
        self._produce_lock = threading.RLock()
        self.rerun_steps: list[str] = []
        self._run_context.produce_result = self.produce_result

    def execute(self, task: StepTask) -> StepOutcome:
        """Skip or run a step. Errors are returned in the outcome; only KeyboardInterrupt is raised."""
        started_at = time.monotonic()
        try:
            return self._execute(task, started_at)
        except Exception as error:  # noqa: BLE001  a step may raise anything
            return self.failure_outcome(task, error, started_at)

    def produce_result(self, name: str, reader: str) -> None:
        """Produce the result of a step that was skipped without a known result.

        The probe may return the result. Otherwise the step runs again, if `repeat` allows it.

        Raises:
            StepResultError: the result cannot be produced.
        """
        # A probe may read the result: the probe is interruptible, but this block can cause an effect.
        with self._produce_lock, self._interrupts.interruptible(enabled=False):
            if name in self._run_context.results:
                return
            task = self._inspector.prepare(name)
            probe_result = self._probe(task)
            if probe_result is not None and probe_result.state == "done":
                if probe_result.result is not None:
                    raw = encode_result(name, probe_result.result)
                    self._run_context.redactor.store_result(name, raw)
                    record = self._inspector.step_record(task, "done", result=raw, adopted=True)
                    self._journal.record_outcome(StepOutcome(name, record=record))
                    return
                if task.step.repeat is None:
                    raise _missing_result_error(name, reader)
            self._run_for_result(task, reader)
            if name not in self._run_context.results:
                raise _missing_result_error(name, reader)

    def _run_for_result(self, task: StepTask, reader: str) -> None:
        name, started_at = task.step.name, time.monotonic()
        self._raise_if_stopping(task)
        self._journal.remove_skip(name)
        try:
            outcome = self._run_step(task, f"its result is unknown and {reader!r} reads it", started_at)
        except Exception as error:  # noqa: BLE001  a step may raise anything
            outcome = self.failure_outcome(task, error, started_at)
        self._journal.record_outcome(outcome)
        # On disk before the reader continues: a crash in the reader must not repeat this step.
        self._journal.flush()
        if outcome.error is not None:
            raise outcome.error
        self.rerun_steps.append(name)

    def _execute(self, task: StepTask, started_at: float) -> StepOutcome:
        step = task.step
        decision = self._inspector.decide(task, self._probe(task))
        if decision.action == "run":
            # Before the effect: if a result cannot be produced, the step fails while nothing has changed.
            for name in step.reads:
                if name not in self._run_context.results:
                    self.produce_result(name, step.name)
            return self._run_step(task, decision.reason, started_at)
        adopted = decision.action == "adopt"
        raw = self._inspector.known_result(task, adopted=adopted)
        if has_hook(step, "restore"):
            step.restore(task.context, None if raw is None else _decode(raw))
        return self._skip_step(task, decision.reason, started_at, raw, adopted=adopted)

    def _probe(self, task: StepTask) -> ProbeResult | None:
        if task.step.repeat == "always" or not has_hook(task.step, "probe"):
            return None
        self._raise_if_stopping(task)
        with self._interrupts.interruptible():
            return self._inspector.probe_with_retries(task, self._probe_policy)

    def _raise_if_stopping(self, task: StepTask) -> None:
        """Raise if no effect may start; called right before each effect, because a probe may take long."""
        if self._run_context.stop.is_set():
            raise OperationCancelledError(
                f"stopped {self._interrupts.stop_cause}; step {task.step.name!r} was not started"
            )
        if self._run_context.is_ending:
            raise OperationCancelledError(f"the run is ending; step {task.step.name!r} was not started")

    def _skip_step(
        self, task: StepTask, reason: str, started_at: float, raw: msgspec.Raw | None, *, adopted: bool
    ) -> StepOutcome:
        step, reason = task.step, self._redact(reason)
        seconds = round(time.monotonic() - started_at, 6)
        if raw is not None:
            self._run_context.redactor.store_result(step.name, raw)
        record = None
        # An intent on disk must not remain: the next run would treat the step as interrupted.
        if adopted:
            record = self._inspector.step_record(
                task, "done", seconds, result=raw or NULL_RESULT, adopted=True
            )
        self._emit(StepSkipped(step=step.name, title=display_title(step), reason=reason, seconds=seconds))
        probe = None
        if has_hook(step, "probe"):
            probe = ProbeLog(at=time.time() - seconds, seconds=seconds, needs=required_steps(step))
        return StepOutcome(step.name, record=record, skipped=reason, probe=probe, forgets=step.forgets)

    def _run_step(self, task: StepTask, reason: str, started_at: float) -> StepOutcome:
        step, context = task.step, task.context
        read_only = step.repeat == "always"
        if context.probe_result is not None and context.probe_result.state in {"done", "absent"}:
            # If the effect did not exist before, a later probe sees the effect of this run.
            task.stale = context.probe_result.state == "done"
        if not task.intent_recorded and not read_only:
            self._journal.record_intents(self._inspector, [task])
        if not self._run_context.is_silent:
            self._emit(StepStarted(step=step.name, title=display_title(step)))
        if read_only:
            with self._interrupts.interruptible():
                value = self._run_with_retries(task)
        else:
            value = self._run_with_retries(task)
        raw = self._store_result(task, value)
        seconds = round(time.monotonic() - started_at, 6)
        note = self._redact(context.note_text or reason)
        record = None
        if not read_only:
            record = self._inspector.step_record(
                task, "done", seconds, result=raw, note=note, adopted=task.adopted
            )
        log = self._inspector.step_log(task, "finished", seconds, note=note, reason=self._redact(reason))
        if not self._run_context.is_silent:
            self._emit(
                StepFinished(
                    step=step.name,
                    title=display_title(step),
                    seconds=seconds,
                    note=note,
                    changed=not read_only,
                )
            )
        return StepOutcome(step.name, record=record, log=log, forgets=step.forgets)

    def _store_result(self, task: StepTask, value: Any) -> msgspec.Raw:
        """Make a result available to readers; after a failed attempt with effect, it comes from the probe."""
        step, run_context = task.step, self._run_context
        raw = encode_result(step.name, value)
        if raw == NULL_RESULT and not task.adopted and step.name in run_context.graph.readers:
            readers = ", ".join(map(repr, run_context.graph.readers[step.name]))
            raise StepResultError(
                f"step {step.name!r} returned nothing, but {readers} reads its result",
                hint=f"Return a value from {step.name!r}, or remove it from `reads`.",
            )
        if raw != NULL_RESULT or not task.adopted:
            run_context.redactor.store_result(step.name, raw)
        if task.adopted and has_hook(step, "restore"):
            step.restore(task.context, _decode(raw))
        return raw

    def _run_with_retries(self, task: StepTask) -> Any:
        if task.step.policy is None:
            return self._run_once(task)
        return task.context.retry(task.step.policy).call(lambda: self._run_once(task))

    def _run_once(self, task: StepTask) -> Any:
        context, run_context = task.context, self._run_context
        if context.attempt and self._has_effect(task):
            return context.probe_result.result if context.probe_result is not None else None
        if run_context.is_ending or run_context.stop.is_set():
            self._raise_if_stopping(task)
        # Before every attempt: without the lock another run may have started, and both would act.
        run_context.lock.check()
        context.attempt += 1
        return task.step.run(context)

    def _has_effect(self, task: StepTask) -> bool:
        """Probe between two attempts: a failed attempt may have caused its effect."""
        probe_result = self._probe(task)
        if probe_result is None or probe_result.state != "done" or task.stale:
            return False
        task.adopted = True
        if not task.context.note_text:
            task.context.note(f"the failed attempt had its effect: {probe_result.reason or 'probe confirms'}")
        return True

    def failure_outcome(self, task: StepTask, error: Exception, started_at: float) -> StepOutcome:
        """Report and return the failure of a step, as a `HoldfastError` without secrets."""
        step, seconds = task.step, round(time.monotonic() - started_at, 6)
        failure = _to_holdfast_error(step.name, error, self._run_context.redactor)
        if isinstance(failure, OperationCancelledError) and not task.context.attempt:
            return _not_started_outcome(task, failure)
        text = str(failure)
        record = None
        # A stopped step keeps its intent: its state is unknown until the next run probes it.
        if task.intent_recorded and not isinstance(failure, OperationCancelledError):
            result = task.record.result if task.record is not None else NULL_RESULT
            record = self._inspector.step_record(
                task, "failed", seconds, result=result, stale=task.stale, error=text, code=failure.code
            )
        progress = tuple(task.context.progress_messages)
        log = self._inspector.step_log(
            task, "failed", seconds, error=text, code=failure.code, progress=progress
        )
        self._emit(
            StepFailed(
                step=step.name, title=display_title(step), seconds=seconds, code=failure.code, error=text
            )
        )
        return StepOutcome(step.name, record=record, log=log, error=failure)


def _not_started_outcome(task: StepTask, error: OperationCancelledError) -> StepOutcome:
    """Return the outcome of a step that was stopped before its effect: its intent is withdrawn."""
    name, before = task.step.name, task.record
    if not task.intent_recorded:
        return StepOutcome(name, error=error)
    return StepOutcome(name, record=before, error=error, forgets="" if before is not None else name)


def _missing_result_error(name: str, reader: str) -> StepResultError:
    return StepResultError(
        f"step {reader!r} reads the result of {name!r}, which is done but has no known result",
        hint=f"Return it from the probe of {name!r}: done(..., result=...). If the step may run twice, set"
        ' repeat="safe".',
    )
