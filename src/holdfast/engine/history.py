"""Looks back: the runs of a store, newest first, those that died told as such.

Looking may be done while a run writes; forgetting old runs may not. Not here: how it is printed (`cli`).
"""

from __future__ import annotations

from contextlib import contextmanager
from glob import escape
from typing import TYPE_CHECKING

from holdfast.engine import files, process
from holdfast.engine.journal import died
from holdfast.engine.lock import FileLock, Holder, Lock, NoLock, locked_by
from holdfast.engine.sqlite import SQLiteStore

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from holdfast.engine.record import RunRecord
    from holdfast.engine.store import Report


def runs_of(store: SQLiteStore) -> list[RunRecord]:
    """All runs of an open store; one whose process is gone is told as it was found."""
    return [_settled(run, store) for run in store.runs()]


def clean(store: SQLiteStore, keep: int) -> list[str]:
    """Forget all but the newest runs, and return their ids; running ones and the records of steps stay."""
    ended = [run.id for run in runs_of(store) if run.outcome != "running"]
    gone = ended[keep:]
    if gone:
        store.drop_runs(gone)
    return gone


def damaged_copies(path: Path) -> list[Path]:
    """Stores that were set aside because they could not be believed, with their companions."""
    return sorted(path.parent.glob(f"{escape(path.name)}.damaged-*"))


@contextmanager
def opened_alone(path: Path, command: str, report: Report) -> Iterator[SQLiteStore]:
    """A store that is there, open to be changed while no run is at work on it.

    The lock beside it keeps runs away. Where there is none, the store itself must say that no run is at work.
    """
    files.check(path, readonly=True)
    beside = path.with_name("lock")
    lock: Lock = FileLock(beside) if beside.exists() else NoLock()
    lock.acquire(Holder.me(command))
    store = SQLiteStore(path)
    try:
        if isinstance(lock, NoLock):
            _refuse_live(SQLiteStore(path, readonly=True))
        store.open(report)
        yield store
    finally:
        store.close()
        lock.release()


def _refuse_live(store: SQLiteStore) -> None:
    store.open()
    try:
        for run in store.unfinished():
            if _alive(run):
                holder = Holder(run.pid, run.host, run.command, run.id, run.started)
                raise locked_by(holder, f"not known, the store is {store.path}")
    finally:
        store.close()


def _settled(run: RunRecord, store: SQLiteStore) -> RunRecord:
    if run.outcome != "running" or _alive(run):
        return run
    return died(run, store.load(run.workflow))


def _alive(run: RunRecord) -> bool:
    return process.lives(run.pid, run.host, run.boot, run.born)
