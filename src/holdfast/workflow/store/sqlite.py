"""The durable store: one private SQLite file in WAL mode with synchronous=FULL and a digest on every row.

A damaged file is set aside as a whole and replaced by an empty store; the run then continues from the probes.
"""

from __future__ import annotations

import os
import sqlite3
import threading
from contextlib import closing, suppress
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import msgspec

from holdfast import __version__
from holdfast.errors import StoreError
from holdfast.events import StoreDamaged
from holdfast.retry import clock
from holdfast.workflow.store import schema, sqlite_file
from holdfast.workflow.store.base import RunRecord, StepRecord
from holdfast.workflow.store.schema import DIGEST_SIZE, CorruptStoreError, row_digest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from holdfast.workflow.store.base import StoreEventListener

T = TypeVar("T")

_UPSERT_STEP = (
    "INSERT INTO steps (scope, name, body, digest) VALUES (?, ?, ?, ?)"
    " ON CONFLICT (scope, name) DO UPDATE SET body=excluded.body, digest=excluded.digest"
)
_UPSERT_RUN = (
    "INSERT INTO runs (id, running, body, digest) VALUES (?, ?, ?, ?)"
    " ON CONFLICT (id) DO UPDATE SET running=excluded.running, body=excluded.body, digest=excluded.digest"
)
_FILE_CHECK_SECONDS = 0.005  # stat() on every write would cost more than the rest of our code around SQLite
_WAL_AUTOCHECKPOINT = "PRAGMA wal_autocheckpoint=128"  # a short WAL is reused: fsync need not write its size
_EARLIER_DAMAGE = "an earlier command found it damaged, and no run has started since"
_decode_record = msgspec.json.Decoder(StepRecord).decode
_decode_run = msgspec.json.Decoder(RunRecord).decode
_encode = msgspec.json.Encoder().encode


class SQLiteStore:
    """Checkpoints in one file; other processes can read it while a run writes. `Store` describes the methods.

    Args:
        path: the file; the first run creates it.
        readonly: only read; create, migrate and replace nothing.

    Attributes:
        commit_count: number of transactions that this object has written.
        unreadable_runs: number of runs that the last call of `runs` left out, because they are damaged.

    Raises:
        StoreError: the file cannot be used, or another program wrote it.
        StoreFullError: the disk is full.
        StoreVersionError: a newer version of holdfast wrote the file.
    """

    def __init__(self, path: str | os.PathLike[str], *, readonly: bool = False) -> None:
        self.path = Path(path)
        self.readonly = readonly
        self.commit_count = 0
        self._immutable = False
        self.unreadable_runs = 0
        self._meta: dict[str, str] = {}
        self._file_id: tuple[int, int] | None = None
        self._next_file_check = 0.0
        self._connection: sqlite3.Connection | None = None
        self._report: StoreEventListener = lambda _event: None
        self._lock = threading.RLock()
        self._aside: Path | None = None

    @property
    def key(self) -> bytes:
        return bytes.fromhex(self._meta["key"])

    def open(self, report: StoreEventListener | None = None) -> None:
        self._report = report or self._report
        self.close()
        sqlite_file.check_path(self.path, readonly=self.readonly)
        if self.readonly:
            self._open_readonly()
            return
        if not self.path.exists():
            # Companion files without a database are left by a crash in `set_aside`; SQLite would replay them.
            self._create(sqlite_file.FILE_SUFFIXES[1:])
        self._with_recovery(self._open_for_writing)
        self._report_earlier_damage()

    def load(self, scope: str) -> dict[str, StepRecord]:
        return self._with_recovery(lambda con: self._select_records(con, scope))

    def begin(self, run: RunRecord, dead_runs: Sequence[RunRecord] = ()) -> None:
        self._with_recovery(lambda con: self._write(con, "", {}, (), (*dead_runs, run)))

    def commit(self, scope: str, records: Mapping[str, StepRecord], forget: Sequence[str] = ()) -> None:
        self._with_recovery(lambda con: self._write(con, scope, records, forget, ()))

    def end(
        self, run: RunRecord, scope: str, records: Mapping[str, StepRecord], forget: Sequence[str] = ()
    ) -> None:
        self._with_recovery(lambda con: self._write(con, scope, records, forget, (run,)))

    def unfinished_runs(self) -> list[RunRecord]:
        return self._with_recovery(lambda con: self._select_runs(con, "WHERE running"))

    def runs(self) -> list[RunRecord]:
        return self._with_recovery(lambda con: self._select_runs(con, ""))

    def delete_runs(self, ids: Iterable[str]) -> None:
        rows = [(run_id,) for run_id in ids]

        def delete(con: sqlite3.Connection) -> None:
            con.execute("BEGIN IMMEDIATE")
            con.executemany("DELETE FROM runs WHERE id = ?", rows)
            con.execute("COMMIT")
            # The WAL may still contain the deleted rows.
            con.execute("PRAGMA wal_checkpoint(TRUNCATE)")

        self._with_recovery(delete)

    def close(self) -> None:
        # With the lock: after a forced stop, a step on another thread may be writing. Its later writes open a
        # new connection, which is safe: the run keeps its own lock while steps are running.
        with self._lock:
            con, self._connection = self._connection, None
            if con is not None:
                with suppress(sqlite3.Error):
                    con.close()

    def _with_recovery(self, work: Callable[[sqlite3.Connection], T], *, is_replaced: bool = False) -> T:
        """Use the connection; if the store turns out to be corrupt, replace it once and repeat."""
        with self._lock:
            try:
                return self._with_connection(work)
            except CorruptStoreError as damage:
                # The file may have been replaced since `open`: a file of another program must not be renamed.
                sqlite_file.reject_foreign_file(self.path)
                if self.readonly or is_replaced:
                    raise StoreError(
                        f"{self.path} is damaged: {damage}",
                        hint="Run the command again: it sets the store aside and continues from the probes.",
                    ) from damage
                self._replace_damaged(str(damage))
                return self._with_recovery(work, is_replaced=True)

    def _with_connection(self, work: Callable[[sqlite3.Connection], T]) -> T:
        con = self._connection
        try:
            if con is None:
                con = self._connection = self._connect()
            return work(con)
        except sqlite3.Error as error:
            raise sqlite_file.translate_error(error, self.path, writing=not self.readonly) from error
        except UnicodeEncodeError as error:
            raise StoreError(f"a record cannot be written to {self.path}: {error}", cause=error) from error
        except (msgspec.MsgspecError, UnicodeDecodeError, ValueError, TypeError, OverflowError) as error:
            raise CorruptStoreError(f"a row cannot be read: {error}") from error

    def _connect(self) -> sqlite3.Connection:
        mode = "ro&immutable=1" if self._immutable else "ro" if self.readonly else "rw"
        uri = f"{self.path.absolute().as_uri()}?mode={mode}"
        # Coordinator and worker threads share the connection; `_lock` serializes them.
        con = sqlite3.connect(uri, uri=True, timeout=5.0, isolation_level=None, check_same_thread=False)
        # The digest covers bytes, and damaged text may not be UTF-8.
        con.text_factory = bytes
        # For damaged or crafted files: detect invalid cells, and run no unsafe function of the schema.
        con.execute("PRAGMA cell_size_check=ON")
        con.execute("PRAGMA trusted_schema=OFF")
        return con

    def _open_readonly(self) -> None:
        """Open for reading; on a read-only disk, without the shared memory file that WAL needs."""
        try:
            self._with_recovery(self._open_for_reading)
        except StoreError:
            if self._immutable or os.access(self.path.parent, os.W_OK, effective_ids=True):
                raise
            self.close()
            self._immutable = True
            self._with_recovery(self._open_for_reading)

    def _open_for_reading(self, con: sqlite3.Connection) -> None:
        self._meta = schema.check_schema(con, str(self.path))

    def _open_for_writing(self, con: sqlite3.Connection) -> None:
        self._meta = schema.check_schema(con, str(self.path))
        if con.execute("PRAGMA journal_mode=WAL").fetchone()[0] != b"wal":
            raise StoreError(f"{self.path} is on a file system without shared memory, which SQLite needs")
        # With NORMAL, SQLite does not sync the WAL on commit: a power failure could lose an intent.
        con.execute("PRAGMA synchronous=FULL")
        con.execute(_WAL_AUTOCHECKPOINT)
        con.execute("PRAGMA secure_delete=ON")  # a deleted secret must not stay in free pages
        self._file_id = sqlite_file.file_identity(self.path)
        schema.migrate_schema(con, int(self._meta["schema"]), __version__)

    def _select_records(self, con: sqlite3.Connection, scope: str) -> dict[str, StepRecord]:
        records: dict[str, StepRecord] = {}
        new_hash = blake2b(f"{scope}\0".encode(), digest_size=DIGEST_SIZE).copy
        # row_digest() is inlined: this loop dominates the time to resume a workflow of thousands of steps.
        query = "SELECT name, body, digest FROM steps WHERE scope = ?"
        for name, body, digest in con.execute(query, (scope,)):
            row_hash = new_hash()
            row_hash.update(b"%b\0%b" % (name, body))
            if row_hash.digest() != digest:
                raise CorruptStoreError(f"the record of step {name.decode(errors='replace')!r} was changed")
            records[name.decode()] = _decode_record(body)
        return records

    def _select_runs(self, con: sqlite3.Connection, where: str) -> list[RunRecord]:
        runs = []
        self.unreadable_runs = 0
        query = f"SELECT id, body, digest FROM runs {where} ORDER BY seq DESC"  # noqa: S608
        for name, body, digest in con.execute(query):
            if isinstance(body, bytes) and row_digest("run", name.decode(errors="replace"), body) == digest:
                runs.append(_decode_run(body))
            else:
                self.unreadable_runs += 1
        return runs

    def _write(
        self,
        con: sqlite3.Connection,
        scope: str,
        records: Mapping[str, StepRecord],
        forget: Sequence[str],
        runs: Sequence[RunRecord],
    ) -> None:
        now = clock.monotonic()
        if runs or now >= self._next_file_check:
            self._next_file_check = now + _FILE_CHECK_SECONDS
            # Writes to an unlinked file succeed, but no later run can read them.
            if sqlite_file.file_identity(self.path) != self._file_id:
                raise sqlite_file.store_replaced_error(self.path)
        rows = []
        for name, record in records.items():
            body = _encode(record)
            rows.append((scope, name, body.decode(), row_digest(scope, name, body)))
        # One transaction: after a crash, the outcome of a step, the intents of the next ones and the end of
        # the run are all on disk, or none of them.
        con.execute("BEGIN IMMEDIATE")
        try:
            con.executemany(_UPSERT_STEP, rows)
            if forget:
                con.executemany(
                    "DELETE FROM steps WHERE scope = ? AND name = ?", [(scope, name) for name in forget]
                )
            for run in runs:
                body = _encode(run)
                row = (run.id, run.outcome == "running", body.decode(), row_digest("run", run.id, body))
                con.execute(_UPSERT_RUN, row)
            con.execute("COMMIT")
        except BaseException:
            with suppress(sqlite3.Error):
                con.execute("ROLLBACK")
            raise
        self.commit_count += 1

    def _create(self, replaced: Sequence[str]) -> Path:
        """Put a complete new store in place of the files with these suffixes; return where those went.

        The new store is complete before the old one moves: if the disk is full, nothing changes.
        """
        key = self.key if "key" in self._meta else None  # fingerprints of the current run stay comparable
        with sqlite_file.atomic_create(self.path) as new:
            try:
                # Closing copies the WAL into the database file, the only file that gets the final name.
                with closing(sqlite3.connect(new, isolation_level=None)) as con:
                    schema.create_schema(con, __version__, key)
            except sqlite3.Error as error:
                raise sqlite_file.translate_error(error, self.path, writing=True) from error
            return sqlite_file.set_aside(self.path, replaced)

    def _replace_damaged(self, reason: str) -> None:
        self.close()
        aside = self._create(sqlite_file.FILE_SUFFIXES)
        self._with_recovery(self._open_for_writing, is_replaced=True)
        self._report_damage(aside, reason)

    def _report_damage(self, aside: Path, reason: str) -> None:
        self._aside = aside
        self._report(StoreDamaged(path=str(self.path), backup_path=str(aside), reason=reason))

    def _report_earlier_damage(self) -> None:
        """Report a set-aside that no run has recorded, because the process died before it began a run."""
        copies = sqlite_file.damaged_copies(self.path)
        databases = [path for path in copies if not path.name.endswith(sqlite_file.FILE_SUFFIXES[1:])]
        if databases and self._aside not in databases and self._with_recovery(_is_empty):
            self._report_damage(databases[-1], _EARLIER_DAMAGE)


def _is_empty(con: sqlite3.Connection) -> bool:
    return con.execute("SELECT 1 FROM runs UNION ALL SELECT 1 FROM steps LIMIT 1").fetchone() is None
