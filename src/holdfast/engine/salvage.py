"""Reads what can still be believed out of a damaged store, and names what is lost.

Reads every table from both ends up to the damage; a row counts only if its digest holds.
Not here: deciding that a store is damaged (`sqlite`).
"""

from __future__ import annotations

import sqlite3
from contextlib import suppress
from typing import TYPE_CHECKING

import msgspec

from holdfast.engine import schema
from holdfast.engine.record import Record, RunRecord
from holdfast.engine.schema import digest
from holdfast.events import StoreDamaged

if TYPE_CHECKING:
    from pathlib import Path

_UNREADABLE = (sqlite3.Error, UnicodeError, OverflowError, MemoryError)
"""What a damaged page makes SQLite or its binding raise; even an error's own text may be damaged."""


class Salvaged(msgspec.Struct):
    """What was saved: bodies by key, and the names of what was seen but cannot be believed."""

    key: bytes | None = None
    steps: dict[tuple[str, str], bytes] = {}
    runs: dict[str, bytes] = {}
    lost: set[str] = set()

    def event(self, path: Path, aside: Path, reason: str) -> StoreDamaged:
        return StoreDamaged(
            path=str(path),
            aside=str(aside),
            reason=reason,
            kept=len(self.steps),
            lost=tuple(sorted(self.lost)),
        )


def read(path: Path, key: bytes | None = None) -> Salvaged:
    """Everything in a damaged store that can be believed; `key` is its key where that is still known."""
    saved = Salvaged()
    con: sqlite3.Connection | None = None
    # A damaged file may fail in ways of its own at any call; whatever was read until then is what there is.
    with suppress(*_UNREADABLE, ValueError):
        con = sqlite3.connect(path, isolation_level=None)
        con.text_factory = bytes
        con.execute("PRAGMA cell_size_check=ON")
        found = schema.read_meta(con).get("key")
        saved.key = bytes.fromhex(found) if found else None
    saved.key = saved.key or key
    if con is not None:
        for direction in ("ASC", "DESC"):
            _read_runs(con, direction, saved)
            _read_steps(con, direction, saved)
        with suppress(*_UNREADABLE):
            con.close()
    _name_losses(saved)
    if saved.key is None:
        # Without the key no fingerprint can be compared, so no record can be believed either.
        saved.lost |= {name for _scope, name in saved.steps}
        saved.steps.clear()
    return saved


def write(con: sqlite3.Connection, saved: Salvaged) -> None:
    """Put what was saved into a new store."""
    con.execute("BEGIN IMMEDIATE")
    con.executemany(
        "INSERT INTO steps (scope, name, body, digest) VALUES (?, ?, ?, ?)",
        [
            (scope, name, body.decode(), digest(scope, name, body))
            for (scope, name), body in saved.steps.items()
        ],
    )
    runs = [(name, body, msgspec.json.decode(body, type=RunRecord)) for name, body in saved.runs.items()]
    runs.sort(key=lambda each: each[2].started)
    con.executemany(
        "INSERT INTO runs (id, running, body, digest) VALUES (?, ?, ?, ?)",
        [
            (name, run.outcome == "running", body.decode(), digest("run", name, body))
            for name, body, run in runs
        ],
    )
    con.execute("COMMIT")


def _read_steps(con: sqlite3.Connection, direction: str, saved: Salvaged) -> None:
    order = f"scope {direction}, name {direction}"
    query = f"SELECT scope, name, body, digest FROM steps ORDER BY {order}"  # noqa: S608
    with suppress(*_UNREADABLE):
        for scope, name, body, mark in con.execute(query):
            if not (isinstance(scope, bytes) and isinstance(name, bytes) and isinstance(body, bytes)):
                continue
            where, step = scope.decode(errors="replace"), name.decode(errors="replace")
            if digest(where, step, body) == mark and _decodes(body, Record):
                saved.steps[where, step] = body
            elif step.isprintable():
                saved.lost.add(step)


def _read_runs(con: sqlite3.Connection, direction: str, saved: Salvaged) -> None:
    query = f"SELECT id, body, digest FROM runs ORDER BY seq {direction}"  # noqa: S608
    with suppress(*_UNREADABLE):
        for name, body, mark in con.execute(query):
            if not (isinstance(name, bytes) and isinstance(body, bytes)):
                continue
            run = name.decode(errors="replace")
            if digest("run", run, body) == mark and _decodes(body, RunRecord):
                saved.runs[run] = body


def _name_losses(saved: Salvaged) -> None:
    """Steps that a run finished, going by its log, and that have no record any more."""
    for body in saved.runs.values():
        run = msgspec.json.decode(body, type=RunRecord)
        for log in run.steps:
            if log.outcome == "finished" and (run.workflow, log.step) not in saved.steps:
                saved.lost.add(log.step)
    saved.lost -= {name for _scope, name in saved.steps}


def _decodes(body: bytes, kind: type[Record | RunRecord]) -> bool:
    try:
        msgspec.json.decode(body, type=kind)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return False
    return True
