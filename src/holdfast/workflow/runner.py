"""One run of a workflow: lock, store, Ctrl-C, scheduler, and the record of how it ended."""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Self

import msgspec

from holdfast import __version__
from holdfast.errors import HoldfastError, OperationCancelledError
from holdfast.events import Event, EventBus, RunFailed, RunFinished, RunStarted, StoreDamaged
from holdfast.workflow.inspector import StepInspector
from holdfast.workflow.journal import Journal, dead_run_record
from holdfast.workflow.lock import Lock, LockHolder, NoLock
from holdfast.workflow.scheduler import Scheduler
from holdfast.workflow.step import RunContext
from holdfast.workflow.step_executor import StepExecutor
from holdfast.workflow.store import MemoryStore, RunRecord, Store, describe_damage, new_run_id

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from types import FrameType

    from holdfast.workflow.workflow import Workflow


class InterruptHandler:
    """Handles SIGINT during a run; does nothing outside the main thread.

    The first Ctrl-C lets running effects finish; waits, and probes on the main thread, end immediately.
    The second raises KeyboardInterrupt immediately, except during a write to the store.
    """

    def __init__(self, stop: threading.Event) -> None:
        self._stop = stop
        self._signal_count = 0
        self._interruptible = False
        self._writing = False
        self._ignoring_signals = False
        self._previous_handler: Any = None
        self._created_on_main_thread = threading.current_thread() is threading.main_thread()

    @property
    def is_forced(self) -> bool:
        """Whether the user pressed Ctrl-C twice."""
        return self._signal_count > 1

    @property
    def stop_cause(self) -> str:
        """What stopped the run, for messages."""
        return "on request" if self._stop.is_set() and not self._signal_count else "by Ctrl-C"

    def __enter__(self) -> Self:
        # SIG_IGN: the parent (nohup, a background job) wants no Ctrl-C. None: the handler is not from Python
        # and could not be restored.
        if self._created_on_main_thread and signal.getsignal(signal.SIGINT) not in {signal.SIG_IGN, None}:
            self._previous_handler = signal.signal(signal.SIGINT, self._on_signal)
        return self

    def __exit__(self, *_exc: object) -> None:
        if self._previous_handler is not None:
            signal.signal(signal.SIGINT, self._previous_handler)
            self._previous_handler = None

    def _on_signal(self, _number: int, _frame: FrameType | None) -> None:
        self._signal_count += 1
        self._stop.set()
        # The handler runs on the main thread between two bytecodes, and the exception surfaces in the code
        # there. The flags restrict it to code that may be interrupted.
        if (self.is_forced or self._interruptible) and not (self._writing or self._ignoring_signals):
            raise KeyboardInterrupt

    @contextmanager
    def interruptible(self, *, enabled: bool = True) -> Iterator[None]:
        """Let the first Ctrl-C interrupt the block, for code without effects.

        Disable it for an effect inside such a block: the effect finishes.
        """
        if not self._created_on_main_thread or threading.current_thread() is not threading.main_thread():
            yield
            return
        previous, self._interruptible = self._interruptible, enabled
        try:
            if enabled and self._stop.is_set():
                raise KeyboardInterrupt
            yield
        finally:
            self._interruptible = previous

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Delay even the second Ctrl-C until the block ends: a half-written store would lose records."""
        # A flag suffices: the journal's lock allows one write at a time, on any thread.
        self._writing = True
        try:
            yield
        finally:
            self._writing = False
            # On a worker thread as well: the scheduler raises the exception again in the coordinator.
            if self.is_forced and not self._ignoring_signals:
                raise KeyboardInterrupt

    def ignore_further_signals(self) -> None:
        """Ignore Ctrl-C from now on: only the last write is left."""
        self._ignoring_signals = True


class RunResult(msgspec.Struct, frozen=True):
    """The result of a successful run."""

    run: str
    seconds: float
    # Steps that ran, except read-only ones.
    changed: tuple[str, ...]
    # Skipped steps, with the reason.
    skipped: Mapping[str, str]
    raw_results: Mapping[str, msgspec.Raw]
    # Damage that the run found in its store.
    damage: tuple[StoreDamaged, ...] = ()

    def result(self, step: str) -> Any:
        """Return what a step returned in this run or an earlier one; None if that is unknown."""
        return msgspec.json.decode(self.raw_results[step]) if step in self.raw_results else None


class Runner:
    """Runs a workflow once, from taking the lock to recording the end."""

    def __init__(  # noqa: PLR0913  the arguments of `Workflow.run`
        self,
        workflow: Workflow,
        params: Any,
        *,
        store: Store | None,
        lock: Lock | None,
        bus: EventBus | None,
        command: str | None,
        subject: str,
        parameters: Mapping[str, object],
        stop: threading.Event | None = None,
    ) -> None:
        self._workflow = workflow
        self._store = store or MemoryStore()
        self._lock = lock or NoLock()
        self._bus = bus or EventBus()
        self._holder = LockHolder.current_process(command or workflow.name, new_run_id())
        self._run_record = RunRecord(
            id=self._holder.run,
            workflow=workflow.name,
            command=self._holder.command,
            subject=subject,
            tool=__version__,
            platform=_describe_platform(),
            parameters={name: str(value) for name, value in parameters.items()},
            pid=self._holder.pid,
            host=self._holder.host,
            boot=self._holder.boot,
            start_ticks=self._holder.start_ticks,
            started=self._holder.since,
        )
        self._run_context = RunContext(workflow.graph, params, self._bus, self._lock, self._run_record.id)
        self._run_context.is_silent = bus is None
        self._run_context.stop = stop or self._run_context.stop
        self._interrupts = InterruptHandler(self._run_context.stop)
        self._started_at = time.monotonic()
        self._scheduler: Scheduler | None = None

    def run(self) -> RunResult:
        """Run all steps. Raises the first error after all outcomes have been recorded."""
        # The lock first: only its holder may write to the store and declare earlier runs dead.
        self._lock.acquire(self._holder)
        try:
            with self._interrupts:
                return self._run_locked()
        finally:
            # Before the release: the next run may open or replace the store as soon as it has the lock.
            self._store.close()
            # A forced stop leaves effects running on threads: then the process keeps the lock until it ends.
            if self._scheduler is None or not self._scheduler.running:
                self._lock.release()

    def _run_locked(self) -> RunResult:
        store, graph = self._store, self._run_context.graph
        store.open(self._report_store_event)
        records = store.load(self._workflow.name)
        # The lock excludes other runs, so the process of every unfinished run has died.
        store.begin(
            self._run_record,
            [dead_run_record(run, store.load(run.workflow)) for run in store.unfinished_runs()],
        )
        self._bus.emit(
            RunStarted(
                run=self._run_record.id,
                command=self._run_record.command,
                subject=self._run_record.subject,
                steps=graph.order,
            )
        )
        inspector = StepInspector(self._run_context, records, store.key)
        journal = Journal(store, self._workflow.name, self._run_record, self._interrupts)
        executor = StepExecutor(inspector, journal, self._interrupts, self._workflow.probe_policy)
        scheduler = self._scheduler = Scheduler(inspector, executor, journal, self._workflow.workers)
        try:
            scheduler.run()
            # All steps have ended: a Ctrl-C could only prevent the record of that.
            self._interrupts.ignore_further_signals()
        except KeyboardInterrupt:
            forced = "immediately " if self._interrupts.is_forced else ""
            raise self._record_failed_run(
                journal, OperationCancelledError(f"stopped {forced}{self._interrupts.stop_cause}")
            ) from None
        except BaseException as error:
            # For example `sys.exit` in a step: the outcomes so far are recorded all the same.
            self._record_failed_run(journal, error)
            raise
        failed = scheduler.failed
        if failed is not None and failed.error is not None:
            raise self._record_failed_run(journal, failed.error, failed.name)
        # A stop that arrives after the last step has nothing to stop: the run is finished.
        if self._run_context.stop.is_set() and not self._is_complete():
            raise self._record_failed_run(
                journal, OperationCancelledError(f"stopped {self._interrupts.stop_cause}")
            )
        return self._finish_run(journal, scheduler, executor)

    def _report_store_event(self, event: Event) -> None:
        """Emit an event of the store; name the steps that a damaged store affects and record the damage."""
        if isinstance(event, StoreDamaged):
            event = msgspec.structs.replace(event, lost=self._run_context.graph.order)
            self._run_record.damage.append(event)
            if self._run_context.is_silent:
                logging.getLogger("holdfast.workflow").warning("%s", describe_damage(event))
        self._bus.emit(event)

    def _is_complete(self) -> bool:
        done = {*(name for names in self._run_record.skipped.values() for name in names)}
        done |= {log.step for log in self._run_record.steps if log.outcome == "finished"}
        return len(done) == len(self._run_context.graph)

    def _finish_run(self, journal: Journal, scheduler: Scheduler, executor: StepExecutor) -> RunResult:
        run = self._run_record
        run.outcome = "finished"
        run.seconds = round(time.monotonic() - self._started_at, 6)
        self._redact_parameters()
        journal.finish(forget=self._run_context.graph.order if self._workflow.forget_on_success else ())
        changed = (*scheduler.changed, *executor.rerun_steps)
        self._bus.emit(RunFinished(run=run.id, seconds=run.seconds, changed=len(changed)))
        skipped = {name: reason for reason, names in run.skipped.items() for name in names}
        return RunResult(run.id, run.seconds, changed, skipped, self._run_context.results, (*run.damage,))

    def _redact_parameters(self) -> None:
        """Mask values of secrets that steps have registered since the run began."""
        redact = self._run_context.redactor.redact
        parameters = self._run_record.parameters
        self._run_record.parameters = {name: redact(value) for name, value in parameters.items()}

    def _record_failed_run(
        self, journal: Journal, error: BaseException, step: str | None = None
    ) -> BaseException:
        """Record the failure, if the store can still be written, and return the error."""
        self._interrupts.ignore_further_signals()
        failure = (
            error if isinstance(error, HoldfastError) else HoldfastError(f"{type(error).__name__}: {error}")
        )
        run = self._run_record
        run.outcome = "interrupted" if isinstance(error, OperationCancelledError) else "failed"
        run.seconds = round(time.monotonic() - self._started_at, 6)
        run.step, run.code = step or "", failure.code
        run.hint = self._run_context.redactor.redact(failure.hint)
        run.error = self._run_context.redactor.redact(str(failure))
        self._redact_parameters()
        try:
            journal.finish(redact_results_of=self._run_context.redactor.leaked_steps)
        except HoldfastError as store_error:
            # The first error is the cause; without its record, the next run only has to probe more.
            error.add_note(f"the store could not be written either: {store_error}")
        self._bus.emit(
            RunFailed(
                run=run.id,
                seconds=run.seconds,
                step=step,
                code=failure.code,
                error=run.error,
                hint=run.hint,
                recorded=not isinstance(self._store, MemoryStore),
            )
        )
        return error


def _describe_platform() -> str:
    system = os.uname()
    python = ".".join(map(str, sys.version_info[:3]))
    return f"Python {python}, {system.sysname} {system.release} {system.machine}"
