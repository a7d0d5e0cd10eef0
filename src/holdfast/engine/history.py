"""Looks back: the runs of a store, newest first, those that died told as such.

Reads only, and may do so while a run writes. Not here: how it is printed (`cli`).
"""

from __future__ import annotations

import os
import socket
from typing import TYPE_CHECKING

from holdfast.engine.journal import died

if TYPE_CHECKING:
    from pathlib import Path

    from holdfast.engine.record import RunRecord
    from holdfast.engine.sqlite import SQLiteStore


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
    return sorted(path.parent.glob(f"{path.name}.damaged-*"))


def _settled(run: RunRecord, store: SQLiteStore) -> RunRecord:
    if run.outcome != "running" or _alive(run):
        return run
    return died(run, store.load(run.workflow))


def _alive(run: RunRecord) -> bool:
    if run.host != socket.gethostname():
        return True  # nobody here can tell; its host can
    try:
        os.kill(run.pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
