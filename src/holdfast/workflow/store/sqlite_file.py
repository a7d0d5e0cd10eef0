"""The file of an SQLite store: path checks, atomic creation, setting damaged files aside, errors."""

from __future__ import annotations

import os
import sqlite3
import stat
import time
from contextlib import contextmanager, suppress
from glob import escape
from typing import TYPE_CHECKING

from holdfast.errors import HoldfastError, StoreError, StoreFullError, TemporaryError
from holdfast.home import NO_SPACE_ERRNOS, fsync_path
from holdfast.workflow.store.schema import APPLICATION_ID, CorruptStoreError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

FILE_SUFFIXES = ("", "-wal", "-shm")

_MAGIC = b"SQLite format 3\0"
_APPLICATION_ID_BYTES = APPLICATION_ID.to_bytes(4, "big")
_APPLICATION_ID_OFFSET = 68
_HEADER_SIZE = _APPLICATION_ID_OFFSET + len(_APPLICATION_ID_BYTES)
_CHUNK_SIZE = 65_536
_MAX_PATH_BYTES, _MAX_NAME_BYTES = 470, 220
# A damaged header may differ in a few bytes; another program's database differs in all four of its id.
_MAX_HEADER_MISMATCHES = 3

# A table is missing, or a value has the wrong type or size: an intact store causes none of these errors.
_CORRUPTION_CODES = {
    sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_ERROR, sqlite3.SQLITE_CONSTRAINT,
    sqlite3.SQLITE_MISMATCH, sqlite3.SQLITE_TOOBIG,
}  # fmt: skip
# SQLite reports a disk quota or a file size limit as an I/O error, and only ENOSPC as "full".
_WRITE_ERROR_CODES = {
    sqlite3.SQLITE_IOERR_WRITE,
    sqlite3.SQLITE_IOERR_FSYNC,
    sqlite3.SQLITE_IOERR_TRUNCATE,
    sqlite3.SQLITE_IOERR_SHMSIZE,
}


def check_path(path: Path, *, readonly: bool) -> None:
    """Raise `StoreError` if a path cannot be a store; restrict the mode of an existing store to 0600."""
    status = None
    try:
        if not readonly:
            _check_path_length(path)
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        status = path.stat()
    except FileNotFoundError:
        if readonly:
            raise StoreError(f"the store {path} does not exist", hint="The first run creates it.") from None
    except (OSError, ValueError) as error:  # ValueError: the path contains a null byte
        reason = getattr(error, "strerror", error)
        raise StoreError(f"the store {str(path)!r} cannot be opened: {reason}", cause=error) from error
    if status is not None:
        _check_file(path, status, readonly=readonly)
    if not readonly and not os.access(path.parent, os.W_OK | os.X_OK, effective_ids=True):
        raise StoreError(
            f"the directory of the store, {path.parent}, is not writable",
            hint="Make it writable, or move the store.",
        )


def file_identity(path: Path) -> tuple[int, int] | None:
    """Return device and inode of a file; None if it does not exist."""
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_dev, status.st_ino


def store_replaced_error(path: Path) -> StoreError:
    """Return the error for a store that was removed or replaced during a run."""
    return StoreError(
        f"{path} was removed or replaced during a run; the run stopped",
        hint="Find out what removes that file, then run the same command again.",
    )


def _check_path_length(path: Path) -> None:
    # SQLite supports paths of about 500 bytes, and the names of set-aside files are longer than the store's.
    real = os.fsencode(os.path.realpath(path))
    if len(real) > _MAX_PATH_BYTES or len(os.fsencode(path.name)) > _MAX_NAME_BYTES:
        raise StoreError(
            f"the path of the store is too long: {len(real)} bytes, {str(path)[:60]}…",
            hint=f"Use a path of at most {_MAX_PATH_BYTES} bytes and a name of at most {_MAX_NAME_BYTES}.",
        )


def _check_file(path: Path, status: os.stat_result, *, readonly: bool) -> None:
    if not stat.S_ISREG(status.st_mode):
        kind = "is a directory" if stat.S_ISDIR(status.st_mode) else "is not a regular file"
        raise StoreError(f"the store {path} {kind}", hint="Pass the path of a file.")
    if not readonly and status.st_uid != os.geteuid():
        raise StoreError(
            f"the store {path} belongs to user {status.st_uid}, but this is user {os.geteuid()}",
            hint="Run the command as that user, or use another store.",
        )
    if not readonly and not os.access(path, os.R_OK | os.W_OK, effective_ids=True):
        raise StoreError(
            f"the store {path} is read-only",
            hint="Make it writable, or move the store.",
        )
    reject_foreign_file(path)
    if not readonly and status.st_mode & 0o077:
        path.chmod(0o600)


def reject_foreign_file(path: Path) -> None:
    """Raise `StoreError` for a file that another program wrote; such a file must never be set aside."""
    try:
        with path.open("rb") as file:
            head = file.read(_HEADER_SIZE)
            blank = not any(head) and not any(
                any(chunk) for chunk in iter(lambda: file.read(_CHUNK_SIZE), b"")
            )
    except OSError as error:
        raise StoreError(f"the store {path} cannot be read: {error.strerror}", cause=error) from error
    if not blank and not is_store_header(head):
        raise StoreError(
            f"{path} is not a store of holdfast: another program wrote it; it was not changed",
            hint="Pass the path of a store, or a path without a file.",
        )


def is_store_header(head: bytes) -> bool:
    """Report whether bytes are the start of a store, possibly truncated or slightly damaged."""
    if len(head) < _HEADER_SIZE:
        return bool(head) and _MAGIC.startswith(head[: len(_MAGIC)])
    actual = head[: len(_MAGIC)] + head[_APPLICATION_ID_OFFSET:]
    expected = _MAGIC + _APPLICATION_ID_BYTES
    return sum(a != b for a, b in zip(actual, expected, strict=True)) <= _MAX_HEADER_MISMATCHES


def translate_error(error: sqlite3.Error, path: Path, *, writing: bool) -> HoldfastError | CorruptStoreError:
    """Return the holdfast error for an error of SQLite."""
    code = getattr(error, "sqlite_errorcode", 0)
    kind = code & 0xFF
    if kind in _CORRUPTION_CODES:
        return CorruptStoreError(str(error))
    if kind == sqlite3.SQLITE_FULL or code in _WRITE_ERROR_CODES:
        return StoreFullError(f"the store {path} cannot be extended: {error}", cause=error)
    # SQLite treats a writable file as read-only if the write version in its header (byte 18) is unknown.
    if kind == sqlite3.SQLITE_READONLY and writing and _is_writable(path):
        return CorruptStoreError("its header marks it as read-only")
    if kind in {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_PROTOCOL}:
        return TemporaryError(f"another program has locked the store {path}: {error}", cause=error)
    # An error of Python's sqlite3 has no code: it does not mean that the file is damaged.
    return StoreError(
        f"the store {path} cannot be used: {error}",
        hint="Check that its disk works and is writable.",
        cause=error,
    )


def _is_writable(path: Path) -> bool:
    try:
        os.close(os.open(path, os.O_RDWR | os.O_CLOEXEC))
    except OSError:
        return False
    return os.access(path.parent, os.W_OK, effective_ids=True)


@contextmanager
def atomic_create(path: Path) -> Iterator[Path]:
    """Yield a new private file next to `path`; when the block ends without error, give it that name."""
    new = path.with_name(f".{path.name}.new-{os.getpid()}")
    try:
        for leftover in path.parent.glob(f".{escape(path.name)}.new-*"):
            leftover.unlink(missing_ok=True)
        os.close(os.open(new, os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_CLOEXEC, 0o600))
        yield new
        # The final name appears last: a crash before leaves a `.new-` file, which the next call deletes.
        _link_or_rename(new, path)
        fsync_path(path.parent)
    except OSError as error:
        kind = StoreFullError if error.errno in NO_SPACE_ERRNOS else StoreError
        raise kind(f"the store {path} cannot be created: {error.strerror}", cause=error) from error
    finally:
        for suffix in FILE_SUFFIXES:
            with suppress(OSError):
                new.with_name(new.name + suffix).unlink(missing_ok=True)


def _link_or_rename(new: Path, path: Path) -> None:
    try:
        # A link fails if the name exists; a rename would overwrite a store that another process has created.
        os.link(new, path)
    except FileExistsError:
        return  # another process created the store meanwhile: use that one
    except OSError:
        new.rename(path)  # the file system has no hard links


def set_aside(path: Path, suffixes: Iterable[str]) -> Path:
    """Rename the files of a damaged store; return the new path of its database. Nothing is deleted.

    The database file moves first. After a crash in between, the next run finds no store and sets the other
    files aside too; the other order could leave a valid database without its latest transactions.
    """
    stamp = time.strftime("%Y%m%d-%H%M%S", time.gmtime())
    aside = path.with_name(f"{path.name}.damaged-{stamp}-{os.urandom(2).hex()}")
    for suffix in suffixes:
        with suppress(FileNotFoundError):
            path.with_name(path.name + suffix).rename(aside.with_name(aside.name + suffix))
    return aside


def damaged_copies(path: Path) -> list[Path]:
    """Return the files of stores that were set aside, companion files included, oldest first."""
    return sorted(path.parent.glob(f"{escape(path.name)}.damaged-*"))
