"""One run from lock to end: opens the store, walks the steps, writes the last word, lets go.

Not here: the order of steps (`schedule`) and the steps themselves (`perform`).
"""

from __future__ import annotations

import os
import socket
import time
from typing import TYPE_CHECKING, Any

import msgspec

from holdfast import __version__
from holdfast.engine import process
from holdfast.engine.context import Session
from holdfast.engine.damage import DamageTeller
from holdfast.engine.examine import Examiner
from holdfast.engine.interrupt import Interrupts
from holdfast.engine.journal import Journal, died
from holdfast.engine.lock import Holder, Lock, NoLock
from holdfast.engine.perform import Performer
from holdfast.engine.record import Record, RunRecord, new_run_id
from holdfast.engine.schedule import Scheduler
from holdfast.engine.store import MemoryStore, Store
from holdfast.errors import CancelledError, HoldfastError
from holdfast.events import Bus, RunFailed, RunFinished, RunStarted, StoreDamaged

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable, Mapping, Sequence

    from holdfast.engine.workflow import Workflow


class RunResult(msgspec.Struct, frozen=True):
    """How a finished run went."""

    run: str
    seconds: float
    changed: tuple[str, ...]
    """steps that ran, those that only look left out"""
    skipped: Mapping[str, str]
    """steps that did not, and why"""
    raw: Mapping[str, msgspec.Raw]
    damage: tuple[StoreDamaged, ...] = ()
    """what was wrong with the store, and what was lost by that"""

    def result(self, step: str) -> Any:
        """What a step returned, in this run or an earlier one."""
        return msgspec.json.decode(self.raw[step]) if step in self.raw else None


class Runner:
    """Runs a workflow once."""

    def __init__(  # noqa: PLR0913  one keyword for each thing that a run may be given
        self,
        workflow: Workflow,
        params: Any,
        *,
        store: Store | None,
        lock: Lock | None,
        bus: Bus | None,
        command: str | None,
        subject: str,
        stop: threading.Event | None = None,
        lookup: Callable[[Session, str], msgspec.Raw] | None = None,
        damage: Sequence[StoreDamaged] = (),
    ) -> None:
        self._workflow = workflow
        self._store = store or MemoryStore()
        self._lock = lock or NoLock()
        self._bus = bus or Bus()
        self._run = RunRecord(
            id=new_run_id(),
            workflow=workflow.name,
            command=command or workflow.name,
            subject=subject,
            tool=__version__,
            pid=os.getpid(),
            host=socket.gethostname(),
            boot=process.boot_id(),
            born=process.born(os.getpid()),
            started=time.time(),
            damage=[*damage],
        )
        self._damage = DamageTeller(bus, workflow.graph.order, self._run.damage)
        self._session = Session(workflow.graph, params, self._bus, self._lock, self._run.id)
        self._session.lookup = lookup
        self._session.silent = bus is None
        self._session.stop = stop or self._session.stop
        self._interrupts = Interrupts(self._session.stop)
        self._began = time.monotonic()
        self._scheduler: Scheduler | None = None

    def run(self) -> RunResult:
        """Walk all steps. Raises the first error, after everything that was done has been recorded."""
        self._lock.acquire(Holder.me(self._run.command, self._run.id))
        try:
            with self._interrupts:
                return self._locked()
        finally:
            self._store.close()
            # An effect that was left behind on a thread is still ours: then the lock lives as long as the
            # process.
            if self._scheduler is None or not self._scheduler.running:
                self._lock.release()

    def _locked(self) -> RunResult:
        store, graph = self._store, self._session.graph
        records = self._opened()
        store.begin(self._run, [died(run, store.load(run.workflow)) for run in store.unfinished()])
        self._bus.emit(
            RunStarted(
                run=self._run.id, command=self._run.command, subject=self._run.subject, steps=graph.order
            )
        )
        examiner = Examiner(self._session, records, store.key)
        journal = Journal(store, self._workflow.name, self._run, self._interrupts)
        performer = Performer(examiner, journal, self._interrupts, self._workflow.patience)
        scheduler = self._scheduler = Scheduler(examiner, performer, journal, self._workflow.workers)
        try:
            scheduler.walk()
            self._interrupts.ending()
        except KeyboardInterrupt:
            at_once = "at once " if self._interrupts.hard else ""
            raise self._ended(journal, CancelledError(f"stopped {at_once}{self._interrupts.by}")) from None
        except HoldfastError as error:
            raise self._ended(journal, error) from error.__cause__
        except BaseException as error:
            # Nobody's error in particular (a `sys.exit` in a step): what was done is kept all the same.
            self._ended(journal, error)
            raise
        failed = scheduler.failed
        if failed is not None and failed.error is not None:
            raise self._ended(journal, failed.error, failed.name)
        if self._session.stop.is_set() and not self._all_done():
            raise self._ended(journal, CancelledError(f"stopped {self._interrupts.by}"))
        return self._finished(journal, scheduler, performer)

    def _opened(self) -> dict[str, Record]:
        records: dict[str, Record] = {}
        try:
            self._store.open(self._damage)
            records = self._store.load(self._workflow.name)
        finally:
            self._damage.loaded(records)
        return records

    def _all_done(self) -> bool:
        done = {*(name for names in self._run.skipped.values() for name in names)}
        done |= {log.step for log in self._run.steps if log.outcome == "finished"}
        return len(done) == len(self._session.graph)

    def _finished(self, journal: Journal, scheduler: Scheduler, performer: Performer) -> RunResult:
        run = self._run
        run.outcome = "finished"
        run.seconds = round(time.monotonic() - self._began, 6)
        journal.end(forget=self._session.graph.order if self._workflow.forget else ())
        changed = (*scheduler.changed, *performer.produced)
        self._bus.emit(RunFinished(run=run.id, seconds=run.seconds, changed=len(changed)))
        skipped = {name: reason for reason, names in run.skipped.items() for name in names}
        return RunResult(run.id, run.seconds, changed, skipped, self._session.results, (*run.damage,))

    def _ended(self, journal: Journal, error: BaseException, step: str | None = None) -> BaseException:
        """Write down how a run failed, as far as the store still takes it, and hand the error on."""
        self._interrupts.ending()
        told = (
            error if isinstance(error, HoldfastError) else HoldfastError(f"{type(error).__name__}: {error}")
        )
        run = self._run
        run.outcome = "interrupted" if isinstance(error, CancelledError) else "failed"
        run.seconds = round(time.monotonic() - self._began, 6)
        run.step, run.code, run.hint = step or "", told.code, self._session.vault.redact(told.hint)
        run.error = self._session.vault.redact(str(told))
        try:
            journal.end(strike=self._session.vault.leaked)
        except HoldfastError as trouble:
            # The first error counts; that its record is missing makes the next run ask the world, no more.
            error.add_note(f"and the store could not be written: {trouble}")
        self._bus.emit(
            RunFailed(
                run=run.id, seconds=run.seconds, step=step, code=told.code, error=run.error, hint=run.hint
            )
        )
        return error
