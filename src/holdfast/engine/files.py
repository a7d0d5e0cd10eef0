"""The store as a file: may it be used, how does a new one come to be, what do errors of SQLite mean.

Not here: anything inside the file (`sqlite`, `schema`).
"""

from __future__ import annotations

import os
import sqlite3
import stat
import time
from contextlib import contextmanager, suppress
from glob import escape
from typing import TYPE_CHECKING

from holdfast.engine.lock import NO_ROOM
from holdfast.engine.schema import APPLICATION_ID, DamageError
from holdfast.errors import HoldfastError, StoreError, StoreFullError, TemporaryError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

COMPANIONS = ("", "-wal", "-shm")
_DAMAGED = ".damaged-"

_MAGIC = b"SQLite format 3\0"
_MARK = APPLICATION_ID.to_bytes(4, "big")
_MARK_AT = 68
_PART = 65_536
_LONGEST_PATH, _LONGEST_NAME = 470, 220
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
            _check_length(path)
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        found = path.stat()
    except FileNotFoundError:
        if readonly:
            raise _missing(path) from None
        found = None
    except (OSError, ValueError) as error:  # a path may hold what no file system takes
        reason = getattr(error, "strerror", error)
        raise StoreError(f"the store {str(path)!r} cannot be reached: {reason}", cause=error) from error
    if found is not None:
        _check_file(path, found, readonly=readonly)
    if not readonly and not os.access(path.parent, os.W_OK | os.X_OK, effective_ids=True):
        raise StoreError(
            f"the directory of the store, {path.parent}, cannot be written to",
            hint="Make it writable, or put the store elsewhere.",
        )


def identity(path: Path) -> tuple[int, int] | None:
    """Which file it is that bears a name; None if there is none."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino


def vanished(path: Path) -> StoreError:
    """What is said of a store that was removed or replaced under a run: what it writes would be lost."""
    return StoreError(
        f"{path} was removed or replaced while a run was at work on it; nothing more was done",
        hint="Find out what removes that file, then run the same command again: it goes on from what it can "
        "observe.",
    )


def _check_length(path: Path) -> None:
    """SQLite takes paths of half a kilobyte; the names of what is put beside the store are longer yet."""
    whole = os.fsencode(os.path.realpath(path))
    if len(whole) > _LONGEST_PATH or len(os.fsencode(path.name)) > _LONGEST_NAME:
        raise StoreError(
            f"the path of the store is too long: {len(whole)} bytes, {str(path)[:60]}…",
            hint=f"At most {_LONGEST_PATH} bytes, and {_LONGEST_NAME} for the name alone: put it elsewhere.",
        )


def _missing(path: Path) -> StoreError:
    if any(path.parent.glob(f".{escape(path.name)}{_DAMAGED}*")):
        return StoreError(
            f"{path} was damaged, and a run died before it had saved what can be saved",
            hint="The next run goes on with that.",
        )
    return StoreError(f"there is no store at {path}", hint="It is made by the first run.")


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
        kind = StoreFullError if error.errno in NO_ROOM else StoreError
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


def put_by(path: Path) -> Path:
    """Put a damaged store and its companions by under a hidden name, until what it holds is saved.

    The file goes first: while a companion is still to follow, nothing there can be taken for a whole store.
    """
    stamp = time.strftime("%Y%m%d-%H%M%S", time.gmtime())
    by = path.with_name(f".{path.name}{_DAMAGED}{stamp}-{os.urandom(2).hex()}")
    _move(path, by)
    return by


def earlier_put_by(path: Path) -> Path | None:
    """A damaged store that was put by when the process died: it is not saved, or not told of yet."""
    found = [
        each
        for each in path.parent.glob(f".{escape(path.name)}{_DAMAGED}*")
        if not each.name.endswith(COMPANIONS[1:])
    ]
    if not found:
        return None
    by = max(found)
    if not path.exists():
        _move(path, by)
    return by


def shown_name(by: Path) -> Path:
    """The name under which a damaged store stays, for people to look at."""
    return by.with_name(by.name.removeprefix("."))


def show_aside(by: Path) -> None:
    """Give it that name, the file last; nothing of it is deleted."""
    _move(by, shown_name(by), reversed(COMPANIONS))


def _move(source: Path, target: Path, companions: Iterable[str] = COMPANIONS) -> None:
    try:
        for companion in companions:
            with suppress(FileNotFoundError):
                source.with_name(source.name + companion).rename(target.with_name(target.name + companion))
    except OSError as error:
        raise StoreError(
            f"the damaged store {source} cannot be moved: {error.strerror}", cause=error
        ) from error
