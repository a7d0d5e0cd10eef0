"""The durable store: one SQLite file, WAL and synchronous=FULL, 0600, a digest on every row.

Not here: the tables (`schema`), what is done with a damaged file (`salvage`), and the checks and words for
files that cannot be used (`files`).
"""

from __future__ import annotations

import os
import sqlite3
import threading
import time
from contextlib import closing, suppress
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import msgspec

from holdfast import __version__
from holdfast.engine import files, salvage, schema
from holdfast.engine.record import Record, RunRecord
from holdfast.engine.schema import DIGEST_SIZE, DamageError, digest
from holdfast.errors import StoreError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from holdfast.engine.store import Report

T = TypeVar("T")

_PUT_STEPS = (
    "INSERT INTO steps (scope, name, body, digest) VALUES {rows}"
    " ON CONFLICT (scope, name) DO UPDATE SET body=excluded.body, digest=excluded.digest"
)
_PUT_STEP = _PUT_STEPS.format(rows="(?, ?, ?, ?)")
_PUT_TWO = _PUT_STEPS.format(rows="(?, ?, ?, ?), (?, ?, ?, ?)")
_PUT_RUN = (
    "INSERT INTO runs (id, running, body, digest) VALUES (?, ?, ?, ?)"
    " ON CONFLICT (id) DO UPDATE SET running=excluded.running, body=excluded.body, digest=excluded.digest"
)
_LOOKS_EVERY = 0.005  # seconds: a look at the name costs more than all else that a write adds to SQLite's own
_ON_A_CHAIN = 2  # records: what the step before came to, and the intent of the next one
_SHORT_LOG = "PRAGMA wal_autocheckpoint=128"
"""pages: a log that is written over and over stays as long as it is, and a sync need not note its growth"""
_CUT_OFF = "it was found damaged earlier, and the run that was to set it aside died"
_decode_record = msgspec.json.Decoder(Record).decode
_decode_run = msgspec.json.Decoder(RunRecord).decode
_encode = msgspec.json.Encoder().encode


class SQLiteStore:
    """Checkpoints in one file; readable by others while a run writes.

    `readonly` opens it to look only: nothing is created, migrated or set aside.
    """

    def __init__(self, path: str | os.PathLike[str], *, readonly: bool = False) -> None:
        self.path = Path(path)
        self.readonly = readonly
        self.commits = 0
        self._immutable = False
        self.unreadable = 0
        self._meta: dict[str, str] = {}
        self._file: tuple[int, int] | None = None
        self._looks_at = 0.0
        self._con: sqlite3.Connection | None = None
        self._report: Report = _ignore
        self._guard = threading.RLock()
        self._put_by: list[Path] = []

    @property
    def key(self) -> bytes:
        return bytes.fromhex(self._meta["key"])

    def open(self, report: Report | None = None) -> None:
        self._report = report or _ignore
        self.close()
        files.check(self.path, readonly=self.readonly)
        if self.readonly:
            self._open_readonly()
            return
        earlier = files.earlier_put_by(self.path)
        if self.path.exists():
            self._guarded(self._open_to_write)
            if earlier is not None:
                self._tell_of(earlier, salvage.read(earlier), _CUT_OFF)
        elif earlier is not None:
            self._save(earlier, _CUT_OFF)
        else:
            self._create(None)
            self._guarded(self._open_to_write)

    def load(self, scope: str) -> dict[str, Record]:
        return self._guarded(lambda con: self._load(con, scope))

    def begin(self, run: RunRecord, died: Sequence[RunRecord] = ()) -> None:
        self._guarded(lambda con: self._write(con, "", {}, (), (*died, run)))

    def commit(self, scope: str, records: Mapping[str, Record], forget: Sequence[str] = ()) -> None:
        self._guarded(lambda con: self._write(con, scope, records, forget, ()))

    def end(
        self, run: RunRecord, scope: str, records: Mapping[str, Record], forget: Sequence[str] = ()
    ) -> None:
        self._guarded(lambda con: self._write(con, scope, records, forget, (run,)))

    def unfinished(self) -> list[RunRecord]:
        return self._guarded(lambda con: self._runs(con, "WHERE running"))

    def runs(self) -> list[RunRecord]:
        return self._guarded(lambda con: self._runs(con, ""))

    def drop_runs(self, ids: Iterable[str]) -> None:
        wanted = [(one,) for one in ids]

        def drop(con: sqlite3.Connection) -> None:
            con.execute("BEGIN IMMEDIATE")
            con.executemany("DELETE FROM runs WHERE id = ?", wanted)
            con.execute("COMMIT")
            con.execute("PRAGMA wal_checkpoint(TRUNCATE)")

        self._guarded(drop)

    def close(self) -> None:
        self._disconnect()
        self._show_aside()

    def _disconnect(self) -> None:
        con, self._con = self._con, None
        if con is not None:
            with suppress(sqlite3.Error):
                con.close()

    def _guarded(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Do some work on the file; set a damaged one aside and do it on what could be saved."""
        with self._guard:
            try:
                return self._translated(work)
            except DamageError as damage:
                files.refuse_foreign(self.path)
                if self.readonly:
                    raise StoreError(
                        f"{self.path} is damaged: {damage}",
                        hint="The next run sets it aside and goes on from what it can observe.",
                    ) from damage
                self._set_aside(str(damage))
                return self._translated(work)

    def _translated(self, work: Callable[[sqlite3.Connection], T]) -> T:
        con = self._con
        try:
            if con is None:
                con = self._con = self._connect()
            return work(con)
        except sqlite3.Error as error:
            raise files.judged(error, self.path, writing=not self.readonly) from error
        except (msgspec.MsgspecError, UnicodeDecodeError, ValueError, TypeError, OverflowError) as error:
            raise DamageError(f"a row cannot be read: {error}") from error

    def _connect(self) -> sqlite3.Connection:
        mode = "ro&immutable=1" if self._immutable else "ro" if self.readonly else "rw"
        uri = f"{self.path.absolute().as_uri()}?mode={mode}"
        con = sqlite3.connect(uri, uri=True, timeout=5.0, isolation_level=None, check_same_thread=False)
        con.text_factory = bytes
        con.execute("PRAGMA cell_size_check=ON")
        con.execute("PRAGMA trusted_schema=OFF")
        return con

    def _open_readonly(self) -> None:
        """Look at a store; on a disk that cannot be written to, as at a file that nobody changes."""
        try:
            self._guarded(self._open_to_look)
        except StoreError:
            if self._immutable or os.access(self.path.parent, os.W_OK, effective_ids=True):
                raise
            self.close()
            self._immutable = True
            self._guarded(self._open_to_look)

    def _open_to_look(self, con: sqlite3.Connection) -> None:
        self._meta = schema.check(con, str(self.path))

    def _open_to_write(self, con: sqlite3.Connection) -> None:
        self._meta = schema.check(con, str(self.path))
        if con.execute("PRAGMA journal_mode=WAL").fetchone()[0] != b"wal":
            raise StoreError(f"{self.path} is on a file system that cannot share memory between processes")
        con.execute("PRAGMA synchronous=FULL")
        con.execute(_SHORT_LOG)
        con.execute("PRAGMA secure_delete=ON")  # a result that had to be struck out leaves no trace
        self._file = files.identity(self.path)
        schema.migrate(con, int(self._meta["schema"]), __version__)

    def _load(self, con: sqlite3.Connection, scope: str) -> dict[str, Record]:
        records: dict[str, Record] = {}
        copy = blake2b(f"{scope}\0".encode(), digest_size=DIGEST_SIZE).copy
        # The digest is spelled out here: this loop is most of what a resume of thousands of steps costs.
        for name, body, mark in con.execute("SELECT name, body, digest FROM steps WHERE scope = ?", (scope,)):
            found = copy()
            found.update(b"%b\0%b" % (name, body))
            if found.digest() != mark:
                raise DamageError(
                    f"the record of step {name.decode(errors='replace')!r} is not what was written"
                )
            records[name.decode()] = _decode_record(body)
        return records

    def _runs(self, con: sqlite3.Connection, where: str) -> list[RunRecord]:
        found = []
        self.unreadable = 0
        query = f"SELECT id, body, digest FROM runs {where} ORDER BY seq DESC"  # noqa: S608
        for name, body, mark in con.execute(query):
            if isinstance(body, bytes) and digest("run", name.decode(errors="replace"), body) == mark:
                found.append(_decode_run(body))
            else:
                self.unreadable += 1
        return found

    def _write(
        self,
        con: sqlite3.Connection,
        scope: str,
        records: Mapping[str, Record],
        forget: Sequence[str],
        runs: Sequence[RunRecord],
    ) -> None:
        now = time.monotonic()
        if runs or now >= self._looks_at:
            self._looks_at = now + _LOOKS_EVERY
            if files.identity(self.path) != self._file:
                raise files.vanished(self.path)
        rows = []
        for name, record in records.items():
            body = _encode(record)
            rows.append((scope, name, body.decode(), digest(scope, name, body)))
        if len(rows) == _ON_A_CHAIN and not (forget or runs):
            con.execute(_PUT_TWO, (*rows[0], *rows[1]))  # one statement is a transaction of its own
        else:
            self._write_all(con, scope, rows, forget, runs)
        self.commits += 1
        if self._put_by:
            self._show_aside()

    def _write_all(
        self,
        con: sqlite3.Connection,
        scope: str,
        rows: Sequence[tuple[str, str, str, bytes]],
        forget: Sequence[str],
        runs: Sequence[RunRecord],
    ) -> None:
        con.execute("BEGIN IMMEDIATE")
        try:
            if rows:
                con.executemany(_PUT_STEP, rows)
            if forget:
                con.executemany(
                    "DELETE FROM steps WHERE scope = ? AND name = ?", [(scope, name) for name in forget]
                )
            for run in runs:
                body = _encode(run)
                row = (run.id, run.outcome == "running", body.decode(), digest("run", run.id, body))
                con.execute(_PUT_RUN, row)
            con.execute("COMMIT")
        except BaseException:
            with suppress(sqlite3.Error):
                con.execute("ROLLBACK")
            raise

    def _create(self, key: bytes | None, fill: Callable[[sqlite3.Connection], None] | None = None) -> None:
        """Make a complete store beside the name and link it into place: an empty file can only be damage."""
        with files.new_beside(self.path) as beside:
            try:
                with closing(sqlite3.connect(beside, isolation_level=None)) as con:
                    schema.create(con, __version__, key)
                    if fill is not None:
                        fill(con)
            except sqlite3.Error as error:
                raise files.judged(error, self.path, writing=True) from error

    def _set_aside(self, reason: str) -> None:
        """Put the damaged file by, keep what can be believed, and tell.

        Until the next write it has a hidden name: a run that dies before goes on from there, and tells again.
        """
        self._disconnect()
        self._save(files.put_by(self.path), reason)

    def _save(self, by: Path, reason: str) -> None:
        saved = salvage.read(by, self.key if "key" in self._meta else None)
        self._create(saved.key, lambda con: salvage.write(con, saved))
        self._translated(self._open_to_write)
        self._tell_of(by, saved, reason)

    def _tell_of(self, by: Path, saved: salvage.Salvaged, reason: str) -> None:
        self._put_by.append(by)
        self._report(saved.event(self.path, files.shown_name(by), reason))

    def _show_aside(self) -> None:
        while self._put_by:
            files.show_aside(self._put_by.pop())


def _ignore(_event: object) -> None:
    """Nobody is listening."""
