"""Private files, read with suspicion and switched at once.

Not here: writing a file as a whole, which `holdfast.home` does, and what the files mean.
"""

from __future__ import annotations

import errno
import os
import stat
from contextlib import contextmanager
from typing import TYPE_CHECKING

from holdfast.errors import DiskFullError, PermanentError
from holdfast.pki.reasons import Reason

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_LARGEST = 64 * 1024
_OTHERS_MAY_ANYTHING = 0o077
_OTHERS_MAY_WRITE = 0o022
_FULL = (errno.ENOSPC, errno.EDQUOT)
_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


def read_private(path: Path) -> tuple[bytes | None, list[Reason]]:
    """A file's content, and what is wrong with the file; no content if it cannot be used at all."""
    try:
        content, status = _content(path)
    except FileNotFoundError:
        return None, [Reason("incomplete", f"{path} is missing")]
    except OSError as error:
        return None, [Reason("unreadable", f"{path} cannot be read: {_words(error)}")]
    if not content.strip():
        return None, [Reason("incomplete", f"{path} is empty")]
    return content, _openness(path, status)


def link_atomic(link: Path, target: str) -> None:
    """Make a symbolic link lead elsewhere: whoever follows it finds the old place or the new one."""
    waiting = link.with_name(f".{link.name}.next")
    waiting.unlink(missing_ok=True)
    waiting.symlink_to(target)
    if link.exists() and not link.is_symlink():
        raise PermanentError(
            f"{link} is in the way: it is no link", hint="Move it away, then run the same command again."
        )
    waiting.replace(link)
    sync_directory(link.parent)


def sync_directory(path: Path) -> None:
    """Have the names in a folder on disk before going on."""
    handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


@contextmanager
def translated(folder: Path) -> Iterator[None]:
    """Errors of the file system as ours."""
    try:
        yield
    except OSError as error:
        if error.errno in _FULL:
            raise DiskFullError(f"no space left for the certificates in {folder}") from error
        raise PermanentError(
            f"the certificates in {folder} cannot be written: {_words(error)}",
            hint="Make the folder yours and writable, then run the same command again.",
        ) from error


def _content(path: Path) -> tuple[bytes, os.stat_result]:
    handle = os.open(path, _FLAGS)
    try:
        status = os.fstat(handle)
        if not stat.S_ISREG(status.st_mode):
            raise OSError(errno.EINVAL, "it is no plain file")
        if status.st_size > _LARGEST:
            raise OSError(errno.EFBIG, "it is too large for what it should be")
        return os.read(handle, _LARGEST), status
    finally:
        os.close(handle)


def _openness(path: Path, status: os.stat_result) -> list[Reason]:
    mode = stat.S_IMODE(status.st_mode)
    reasons = []
    if mode & _OTHERS_MAY_ANYTHING:
        reasons.append(Reason("too-open", f"{path} is open to others (mode {mode:04o} instead of 0600)"))
    if os.geteuid() not in (0, status.st_uid):
        reasons.append(Reason("too-open", f"{path} belongs to another user"))
    return reasons


def folder_openness(folder: Path) -> list[Reason]:
    """What is wrong with a folder whose files are trusted; one that is not there is no matter."""
    try:
        mode = stat.S_IMODE(folder.stat().st_mode)
    except OSError:
        return []
    if not mode & _OTHERS_MAY_WRITE:
        return []
    return [Reason("too-open", f"others may change files in {folder} (mode {mode:04o})")]


def _words(error: OSError) -> str:
    return error.strerror or type(error).__name__
