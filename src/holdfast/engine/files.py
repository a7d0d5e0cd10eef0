"""The store as a file: may it be used, how does a new one come to be, what do errors of SQLite mean.

Not here: anything inside the file (`sqlite`, `schema`).
"""

from __future__ import annotations

import os
import sqlite3
import stat
import time
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from holdfast.engine.schema import APPLICATION_ID, DamageError
from holdfast.errors import HoldfastError, StoreError, StoreFullError, TemporaryError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

COMPANIONS = ("", "-wal", "-shm")

_MAGIC = b"SQLite format 3\0"
_MARK = APPLICATION_ID.to_bytes(4, "big")
_MARK_AT = 68
_PART = 65_536
_MOST_WRONG = 3
"""A few bytes of the header may be damaged; another program's database differs in all four of the mark."""

# SQLite says "I/O error" for a disk quota or a file size limit, and "full" only for ENOSPC.
_WRITE_TROUBLE = {
    sqlite3.SQLITE_IOERR_WRITE,
    sqlite3.SQLITE_IOERR_FSYNC,
    sqlite3.SQLITE_IOERR_TRUNCATE,
    sqlite3.SQLITE_IOERR_SHMSIZE,
}


def check(path: Path, *, readonly: bool) -> None:
    """Raise one clear error for a path that cannot be a store; tighten the mode of one that can."""
    try:
        if not readonly:
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        found = path.stat()
    except FileNotFoundError:
        if readonly:
            raise StoreError(f"there is no store at {path}", hint="It is made by the first run.") from None
        found = None
    except OSError as error:
        raise StoreError(f"the store {path} cannot be reached: {error.strerror}", cause=error) from error
    if found is not None:
        _check_file(path, found, readonly=readonly)
    if not readonly and not os.access(path.parent, os.W_OK | os.X_OK, effective_ids=True):
        raise StoreError(
            f"the directory of the store, {path.parent}, cannot be written to",
            hint="Make it writable, or put the store elsewhere.",
        )


def _check_file(path: Path, found: os.stat_result, *, readonly: bool) -> None:
    if stat.S_ISDIR(found.st_mode):
        raise StoreError(f"the store {path} is a directory", hint="Give the path of a file.")
    if not stat.S_ISREG(found.st_mode):
        raise StoreError(f"the store {path} is not a regular file", hint="Give the path of a file.")
    if readonly:
        refuse_foreign(path)
        return
    if found.st_uid != os.geteuid():
        raise StoreError(
            f"the store {path} belongs to user {found.st_uid}, and this is user {os.geteuid()}",
            hint="Run the command as that user, or use a store of your own.",
        )
    if not os.access(path, os.R_OK | os.W_OK, effective_ids=True):
        raise StoreError(
            f"the store {path} cannot be written to: it is read-only",
            hint="Make it writable, or put the store elsewhere.",
        )
    refuse_foreign(path)
    if found.st_mode & 0o077:
        path.chmod(0o600)


def refuse_foreign(path: Path) -> None:
    """Raise for a file that something else wrote: it is not ours to set aside, however odd it looks."""
    try:
        with path.open("rb") as file:
            head = file.read(_MARK_AT + len(_MARK))
            blank = not any(head) and not any(any(part) for part in iter(lambda: file.read(_PART), b""))
    except OSError as error:
        raise StoreError(f"the store {path} cannot be read: {error.strerror}", cause=error) from error
    if not blank and not is_marked(head):
        raise StoreError(
            f"{path} is not a store of holdfast: something else wrote it, and it was left alone",
            hint="Give the path of a store, or one where there is no file yet.",
        )


def is_marked(head: bytes) -> bool:
    """Whether the first bytes of a file are those of a store, be it cut short or slightly damaged."""
    if len(head) < _MARK_AT + len(_MARK):
        return bool(head) and _MAGIC.startswith(head[: len(_MAGIC)])
    found = head[: len(_MAGIC)] + head[_MARK_AT:]
    return sum(here != ours for here, ours in zip(found, _MAGIC + _MARK, strict=True)) <= _MOST_WRONG


def judged(error: sqlite3.Error, path: Path, *, writing: bool) -> HoldfastError | DamageError:
    """What an error of SQLite means for us."""
    code = getattr(error, "sqlite_errorcode", 0)
    kind = code & 0xFF
    if kind in {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB}:
        return DamageError(str(error))
    if kind == sqlite3.SQLITE_FULL or code in _WRITE_TROUBLE:
        return StoreFullError(f"the store {path} would not take another record: {error}", cause=error)
    if kind == sqlite3.SQLITE_READONLY and writing and _writable(path):
        return DamageError("its header says that it must not be written to")
    if kind in {sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PERM, sqlite3.SQLITE_IOERR}:
        return StoreError(
            f"the store {path} cannot be used: {error}",
            hint="See that its disk is well and writable.",
            cause=error,
        )
    if kind in {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED}:
        return TemporaryError(f"the store {path} is held by another program: {error}", cause=error)
    # What is left is an answer that a sound file of ours never gives: a table that is missing, a type that
    # is off.
    return DamageError(str(error))


def _writable(path: Path) -> bool:
    try:
        os.close(os.open(path, os.O_RDWR | os.O_CLOEXEC))
    except OSError:
        return False
    return os.access(path.parent, os.W_OK, effective_ids=True)


@contextmanager
def new_beside(path: Path) -> Iterator[Path]:
    """A file to fill beside `path`, 0600, put in its place when the block ends well."""
    beside = path.with_name(f".{path.name}.new-{os.getpid()}")
    try:
        for leftover in path.parent.glob(f".{path.name}.new-*"):
            leftover.unlink(missing_ok=True)
        os.close(os.open(beside, os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_CLOEXEC, 0o600))
        yield beside
        _link(beside, path)
        _sync_directory(path.parent)
    except OSError as error:
        full = isinstance(error, OSError) and error.errno in {27, 28, 122}  # too big, no space, over quota
        kind = StoreFullError if full else StoreError
        raise kind(f"the store {path} cannot be made: {error.strerror}", cause=error) from error
    finally:
        for companion in COMPANIONS:
            with suppress(OSError):
                beside.with_name(beside.name + companion).unlink(missing_ok=True)


def _link(beside: Path, path: Path) -> None:
    try:
        os.link(beside, path)
    except FileExistsError:
        return  # somebody else made one meanwhile; that one counts
    except OSError:
        beside.rename(path)  # a file system without hard links


def _sync_directory(directory: Path) -> None:
    fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def move_aside(path: Path) -> Path:
    """Give a damaged store and its companions another name; nothing of it is deleted."""
    stamp = time.strftime("%Y%m%d-%H%M%S", time.gmtime())
    aside = path.with_name(f"{path.name}.damaged-{stamp}-{os.urandom(2).hex()}")
    try:
        for companion in COMPANIONS:
            with suppress(FileNotFoundError):
                path.with_name(path.name + companion).rename(aside.with_name(aside.name + companion))
    except OSError as error:
        raise StoreError(
            f"the damaged store {path} cannot be moved: {error.strerror}", cause=error
        ) from error
    return aside
