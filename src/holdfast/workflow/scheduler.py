"""Decides which step runs next, and runs independent steps in parallel.

One coordinator decides and records. It runs a single ready step itself, and several on threads. The intent
of a step is on disk before the step starts.
"""

from __future__ import annotations

import contextvars
import queue
import threading
import time
from collections import deque
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from holdfast.events import StepSkipped
from holdfast.workflow.inspector import StepTask
from holdfast.workflow.journal import Journal, StepOutcome
from holdfast.workflow.step import StepContext

if TYPE_CHECKING:
    from collections.abc import Mapping

    from holdfast.workflow.inspector import StepInspector
    from holdfast.workflow.step_executor import StepExecutor

_NO_INPUTS: Mapping[str, Any] = {}
_SIGNAL_CHECK_SECONDS = 0.2


class Scheduler:
    """Runs the steps of one workflow to the end, or to the first failure."""

    def __init__(
        self, inspector: StepInspector, executor: StepExecutor, journal: Journal, workers: int
    ) -> None:
        self._inspector = inspector
        self._executor = executor
        self._journal = journal
        self._workers = workers
        self._run_context = inspector.run_context
        self._graph = inspector.run_context.graph
        self._record_only, self._without_inputs = self._graph.record_only, self._graph.without_inputs
        # Local names: with thousands of steps to skip, attribute lookups are measurable.
        self._fingerprints, self._results = inspector.fingerprints, inspector.run_context.results
        self._records = inspector.records
        self._compute_fingerprint = inspector.compute_fingerprint
        self._waiting: dict[str, int] = {}
        self._ready: deque[str] = deque()
        self._tasks: deque[StepTask] = deque()
        self._outcomes: queue.SimpleQueue[StepOutcome | BaseException] = queue.SimpleQueue()
        self.running = 0
        self.changed: list[str] = []
        self.failed: StepOutcome | None = None

    def run(self) -> None:
        """Run until all steps are done, one fails or the run is stopped; wait for the running steps."""
        try:
            self._run_loop()
        except KeyboardInterrupt:
            raise  # forced stop: running steps are abandoned
        except BaseException:
            self._drain()
            raise

    def _drain(self) -> None:
        """Wait for the running steps and start no others; the lock must be held until then."""
        self._run_context.is_ending = True
        while self.running:
            outcome = self._next_outcome()
            self.running -= 1
            if isinstance(outcome, StepOutcome):
                self._journal.record_outcome(outcome)

    def _run_loop(self) -> None:
        self._skip_recorded_steps()
        while True:
            self._prepare_ready_steps()
            self._start_tasks()
            if self.running:
                # The wait may take minutes: a kill meanwhile must not lose the outcomes of finished steps.
                self._journal.flush()
                outcome = self._next_outcome()
                self.running -= 1
                self._handle_outcome(outcome)
            elif not (self._ready or self._tasks) or self._is_stopping:
                return

    @property
    def _is_stopping(self) -> bool:
        return self.failed is not None or self._run_context.stop.is_set()

    def _skip_recorded_steps(self) -> None:
        """Skip in one pass all steps that a record alone decides; then find the ready steps."""
        for name in self._graph.order:
            self._try_skip_by_record(name)
        for name in self._graph.order:
            if name not in self._fingerprints:
                self._waiting[name] = sum(need not in self._fingerprints for need in self._graph.needs[name])
                if not self._waiting[name]:
                    self._ready.append(name)

    def _prepare_ready_steps(self) -> None:
        """Skip ready steps that a record alone decides, and prepare tasks for the others."""
        while self._ready and not self._is_stopping:
            name = self._ready.popleft()
            if self._try_skip_by_record(name):
                self._release_dependants(name)
                continue
            try:
                self._tasks.append(self._inspector.prepare(name))
            except Exception as error:  # noqa: BLE001  `inputs` is the author's code
                step = self._graph.steps[name]
                task = StepTask(step, StepContext(self._run_context, step), "", {}, None)
                self._handle_outcome(self._executor.failure_outcome(task, error, time.monotonic()))

    def _try_skip_by_record(self, name: str) -> bool:
        """Skip a step without probe if its record is still valid."""
        record = self._records.get(name)
        if record is None or record.state != "done" or name not in self._record_only:
            return False
        step = self._graph.steps[name]
        try:
            # KeyError: a need is not decided yet. `_prepare_ready_steps` tries again when all needs are done.
            needs = [self._fingerprints[need] for need in self._graph.needs[name]]
            has_inputs = name not in self._without_inputs
            inputs = step.inputs(StepContext(self._run_context, step)) if has_inputs else _NO_INPUTS
            fingerprint = self._compute_fingerprint(step, inputs, needs)
        except Exception:  # noqa: BLE001  `prepare` calls `inputs` again and reports the error
            return False
        if fingerprint != record.fingerprint or (record.reads and self._inspector.changed_reads(record)):
            return False
        self._fingerprints[name] = fingerprint
        self._results[name] = record.result
        reason = f"done in run {record.run}"
        self._journal.record_outcome(StepOutcome(name, skipped=reason))
        if not self._run_context.is_silent:
            self._run_context.bus.emit(StepSkipped(step=name, title=step.title or name, reason=reason))
        return True

    def _start_tasks(self) -> None:
        """Write intents and pending outcomes to disk in one commit, then start the tasks."""
        if self._is_stopping or not self._tasks or self.running >= self._workers:
            return
        batch = [self._tasks.popleft() for _ in range(min(len(self._tasks), self._workers - self.running))]
        self._journal.record_intents(
            self._inspector, [task for task in batch if not self._is_likely_skipped(task)]
        )
        # Usually this is the main thread, the only one on which Ctrl-C can interrupt a probe.
        if len(batch) == 1 and not self.running:
            self._handle_outcome(self._executor.execute(batch[0]))
            return
        for task in batch:
            self.running += 1
            # A new thread has an empty context: the copy carries the retry deadline of the caller. A daemon
            # thread does not keep the process alive after a forced stop.
            context = contextvars.copy_context()
            threading.Thread(
                target=context.run,
                args=(self._run_on_thread, task),
                daemon=True,
                name=f"holdfast {task.step.name}",
            ).start()

    def _is_likely_skipped(self, task: StepTask) -> bool:
        """Report whether a step will probably be skipped or is read-only: its intent can wait."""
        record = task.record
        if task.step.repeat == "always":
            return True
        # An intent replaces the `done` record. After a crash before the probe, the next run would adopt the
        # step without knowing its result.
        return record is not None and record.state == "done" and record.fingerprint == task.fingerprint

    def _next_outcome(self) -> StepOutcome | BaseException:
        # A wait without timeout can miss Ctrl-C: a signal that arrives between the interpreter's last check
        # and the blocking system call does not interrupt that call.
        while True:
            with suppress(queue.Empty):
                return self._outcomes.get(timeout=_SIGNAL_CHECK_SECONDS)

    def _run_on_thread(self, task: StepTask) -> None:
        try:
            self._outcomes.put(self._executor.execute(task))
        except BaseException as error:  # noqa: BLE001  raised by the coordinator
            self._outcomes.put(error)

    def _handle_outcome(self, outcome: StepOutcome | BaseException) -> None:
        if isinstance(outcome, BaseException):
            raise outcome
        self._journal.record_outcome(outcome)
        if outcome.error is not None:
            self.failed = self.failed or outcome
            return
        if outcome.log is not None and self._graph.steps[outcome.name].repeat != "always":
            self.changed.append(outcome.name)
        self._release_dependants(outcome.name)

    def _release_dependants(self, name: str) -> None:
        waiting = self._waiting
        for dependant in self._graph.dependants[name]:
            waiting[dependant] -= 1
            if not waiting[dependant]:
                self._ready.append(dependant)
