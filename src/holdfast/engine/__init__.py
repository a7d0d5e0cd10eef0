"""The engine: steps, runner, store, lock, fingerprint, preview. Run it again and it goes on.

    from holdfast.engine import FileLock, SQLiteStore, Step, Workflow, absent, done

Knows nothing of Docker or Kubernetes. Each name is loaded on first use: what only describes a workflow does
not load SQLite. The design is in docs/decisions/0030-engine.md.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast import lazy
from holdfast.engine.step import Step
from holdfast.engine.verdict import JSON, Verdict, absent, done, partial, unknown
from holdfast.engine.workflow import Workflow

if TYPE_CHECKING:
    from holdfast.engine.commandlock import CommandLock
    from holdfast.engine.context import Context
    from holdfast.engine.lock import FileLock, Holder, Lock, NoLock
    from holdfast.engine.preview import Plan, PlannedStep
    from holdfast.engine.record import Record, RunRecord, StepLog
    from holdfast.engine.runner import RunResult
    from holdfast.engine.secret import Secret
    from holdfast.engine.sqlite import SQLiteStore
    from holdfast.engine.store import MemoryStore, Store

__all__ = [
    "JSON",
    "CommandLock",
    "Context",
    "FileLock",
    "Holder",
    "Lock",
    "MemoryStore",
    "NoLock",
    "Plan",
    "PlannedStep",
    "Record",
    "RunRecord",
    "RunResult",
    "SQLiteStore",
    "Secret",
    "Step",
    "StepLog",
    "Store",
    "Verdict",
    "Workflow",
    "absent",
    "done",
    "partial",
    "unknown",
]

_HOMES = {
    "CommandLock": "commandlock",
    "Context": "context",
    "FileLock": "lock",
    "Holder": "lock",
    "Lock": "lock",
    "MemoryStore": "store",
    "NoLock": "lock",
    "Plan": "preview",
    "PlannedStep": "preview",
    "Record": "record",
    "RunRecord": "record",
    "RunResult": "runner",
    "SQLiteStore": "sqlite",
    "Secret": "secret",
    "StepLog": "record",
    "Store": "store",
}


__getattr__ = lazy.names(globals(), _HOMES)
