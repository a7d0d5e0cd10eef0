"""The journal of a run: intents before effects, outcomes after them, and the history of earlier runs."""

from __future__ import annotations

import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec.structs import replace

from holdfast.workflow.lock import FileLock, Lock, LockHolder, NoLock, locked_error
from holdfast.workflow.store import NULL_RESULT, ProbeLog, RunRecord, StepAttempt, StepLog, StepRecord

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Set as AbstractSet
    from pathlib import Path

    from holdfast.workflow.inspector import StepInspector, StepTask
    from holdfast.workflow.runner import InterruptHandler
    from holdfast.workflow.store import SQLiteStore, Store, StoreEventListener


class StepOutcome(msgspec.Struct, gc=False):
    """The outcome of a step in this run."""

    name: str
    record: StepRecord | None = None
    log: StepLog | None = None
    # Why the step was skipped; empty if it was not.
    skipped: str = ""
    # The probe of a skipped step.
    probe: ProbeLog | None = None
    error: BaseException | None = None
    # The step whose record is deleted in the same commit; empty if none.
    forgets: str = ""


class Journal:
    """Writes the records of one run; thread-safe.

    Outcomes are buffered until the next intent shares their commit, or until the run waits.
    """

    def __init__(self, store: Store, scope: str, run: RunRecord, interrupts: InterruptHandler) -> None:
        self.run = run
        self._store = store
        self._scope = scope
        self._interrupts = interrupts
        self._records: dict[str, StepRecord] = {}
        self._forget: list[str] = []
        # The coordinator records outcomes; worker threads record late intents and produced results.
        self._lock = threading.Lock()

    def record_intents(self, inspector: StepInspector, tasks: Iterable[StepTask]) -> None:
        """Write the intents of tasks and everything buffered to disk.

        An effect may start only after this returns: a crash then leaves an intent, and the next run probes
        the step. Outcomes that are still buffered share the commit, so a chain costs one commit per step.
        """
        with self._lock:
            for task in tasks:
                if not task.intent_recorded:
                    task.intent_recorded = True
                    result = task.record.result if task.record is not None else NULL_RESULT
                    self._records[task.step.name] = inspector.step_record(
                        task, "intent", result=result, stale=task.stale
                    )
            self._flush()

    def record_outcome(self, outcome: StepOutcome) -> None:
        """Buffer an outcome; the next flush writes it to disk."""
        with self._lock:
            if outcome.record is not None:
                self._records[outcome.name] = outcome.record
            if outcome.forgets:
                self._forget.append(outcome.forgets)
            if outcome.log is not None:
                self.run.steps.append(outcome.log)
            if outcome.skipped:
                self.run.skipped.setdefault(outcome.skipped, []).append(outcome.name)
                if outcome.probe is not None:
                    self.run.probes[outcome.name] = outcome.probe

    def remove_skip(self, name: str) -> None:
        """Remove a step from the skipped ones, because it runs after all."""
        with self._lock:
            self.run.probes.pop(name, None)
            for reason, names in list(self.run.skipped.items()):
                if name in names:
                    names.remove(name)
                if not names:
                    del self.run.skipped[reason]

    def flush(self) -> None:
        """Write everything buffered to disk."""
        with self._lock:
            self._flush()

    def finish(
        self, *, forget: Iterable[str] = (), redact_results_of: AbstractSet[str] = frozenset()
    ) -> None:
        """Write the last outcomes and the end of the run to disk in one commit.

        Args:
            forget: steps whose records are deleted.
            redact_results_of: steps whose stored results are deleted; their records are kept.
        """
        with self._lock:
            # Earlier commits may have written these results: the secret has to be removed from the store too.
            if redact_results_of:
                stored = {**self._store.load(self._scope), **self._records}
                for name in redact_results_of & stored.keys():
                    self._records[name] = replace(stored[name], result=NULL_RESULT, adopted=True)
            deleted = [*self._forget, *forget]
            kept = {name: record for name, record in self._records.items() if name not in set(deleted)}
            with self._interrupts.writing():
                self._store.end(self.run, self._scope, kept, deleted)

    def _flush(self) -> None:
        if self._records or self._forget:
            with self._interrupts.writing():
                self._store.commit(self._scope, self._records, self._forget)
                # After the commit: if it fails, `finish` writes the same records.
                self._records, self._forget = {}, []


def dead_run_record(run: RunRecord, records: dict[str, StepRecord]) -> RunRecord:
    """Complete the record of a run whose process died, from the records of its steps.

    Skipped steps are not recorded. The run lasted at least until its last record was written.
    """
    logs = _recorded_logs(run, records)
    last = max((record.at for record in records.values() if record.run == run.id), default=run.started)
    return replace(
        run,
        outcome="died",
        seconds=round(max(0.0, last - run.started), 6),
        steps=logs,
        step=next((log.step for log in logs if log.outcome == "in flight"), ""),
        error="the process died",
        code="died",
    )


def _recorded_logs(run: RunRecord, records: dict[str, StepRecord]) -> list[StepLog]:
    own = ((name, record) for name, record in records.items() if record.run == run.id)
    return sorted((_step_log_from_record(name, record) for name, record in own), key=lambda log: log.at)


def _step_log_from_record(name: str, record: StepRecord) -> StepLog:
    """Return the log of a step in the run that wrote its record."""
    outcome: Any = {"done": "finished", "failed": "failed", "intent": "in flight"}[record.state]
    fields = {field: getattr(record, field) for field in StepAttempt.__struct_fields__}
    return StepLog(step=name, outcome=outcome, **{**fields, "at": record.at - record.seconds})


def list_runs(store: SQLiteStore) -> list[RunRecord]:
    """Return all runs of an open store, newest first; a run whose process is gone has outcome `died`."""
    return [_mark_if_dead(run, store) for run in store.runs()]


def with_recorded_steps(run: RunRecord, store: SQLiteStore) -> RunRecord:
    """Return a run that is still running with the steps that it has recorded so far; other runs unchanged."""
    if run.outcome != "running":
        return run
    return replace(run, steps=_recorded_logs(run, store.load(run.workflow)))


def delete_old_runs(store: SQLiteStore, keep: int) -> list[str]:
    """Delete all but the newest `keep` runs, except running ones; return their ids. Step records are kept."""
    ended = [run.id for run in list_runs(store) if run.outcome != "running"]
    if ended[keep:]:
        store.delete_runs(ended[keep:])
    return ended[keep:]


@contextmanager
def open_exclusive(
    path: Path, command: str, report: StoreEventListener, *, lock: Lock | None = None
) -> Iterator[SQLiteStore]:
    """Open an existing store for changes while no run uses it.

    A lock file next to the store keeps runs away, else `lock` does. Without that file, the store must contain
    no live run: its runs may take another lock, for example one on a remote host.
    """
    from holdfast.workflow.store import SQLiteStore, check_path

    check_path(path, readonly=True)
    lock_path = path.with_name("lock")
    has_lock_file = lock_path.exists()
    lock = FileLock(lock_path) if has_lock_file else lock or NoLock()
    lock.acquire(LockHolder.current_process(command))
    store = SQLiteStore(path)
    try:
        # This check does not exclude a run that starts later.
        if not has_lock_file:
            _raise_if_running(SQLiteStore(path, readonly=True))
        store.open(report)
        yield store
    finally:
        store.close()
        lock.release()


def _raise_if_running(store: SQLiteStore) -> None:
    store.open()
    try:
        for run in store.unfinished_runs():
            if _is_alive(run):
                holder = LockHolder(run.pid, run.host, run.command, run.id, run.started)
                raise locked_error(holder, f"unknown; the store is {store.path}")
    finally:
        store.close()


def _mark_if_dead(run: RunRecord, store: SQLiteStore) -> RunRecord:
    if run.outcome != "running" or _is_alive(run):
        return run
    return dead_run_record(run, store.load(run.workflow))


def _is_alive(run: RunRecord) -> bool:
    return LockHolder(run.pid, run.host, boot=run.boot, start_ticks=run.start_ticks).is_alive()
