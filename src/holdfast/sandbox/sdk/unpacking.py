"""A tar archive from a sandbox onto this machine's disk, below one folder and nowhere else.

A sandbox is not trusted: names that are absolute, lead upwards or are not what was asked for end the copy;
links that lead out of the copy, and devices, are not made and are named. No step follows a link: every folder
is entered by its parent's descriptor. A file has its name only once it is whole. Not here: receiving
(copying.py), and reading the archive itself (tape.py).
"""

from __future__ import annotations

import os
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, BinaryIO

from holdfast.errors import ClusterRefusedError, DiskFullError, HoldfastError, UsageError
from holdfast.sandbox.sdk.links import leads_out
from holdfast.sandbox.sdk.tape import Kind, Tape, refused

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from holdfast.sandbox.sdk.tape import Entry

_MOST_NAMED = 1000
_LONGEST_PARTIAL = 200
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_NO_SPACE = (28, 122)


@dataclass(slots=True)
class Received:
    """What came out of an archive."""

    entries: int = 0
    bytes: int = 0
    refused: list[str] = field(default_factory=list)
    """what was not made, and why; beyond a thousand of them, only how many more"""
    _unnamed: int = 0

    def refuse(self, text: str) -> None:
        """Note what is not made, in bounded memory."""
        if len(self.refused) < _MOST_NAMED:
            self.refused.append(text)
            return
        self._unnamed += 1
        self.refused[_MOST_NAMED:] = [f"and {self._unnamed} more"]


def unpack(
    archive: BinaryIO,
    folder: Path,
    *,
    rename: tuple[str, str] | None = None,
    progress: Callable[[int], None] = lambda _: None,
) -> Received:
    """Write an archive's entries below `folder`; `rename`: the one top entry, and its new name."""
    try:
        root = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        raise UsageError(f"{folder} cannot be written to: {error.strerror}") from error
    try:
        with _translated(folder):
            copy = _Copy(Tape(archive), rename, progress)
            for entry in copy.tape.entries():
                if parts := copy.parts(entry.name):
                    _write(root, parts, copy, entry)
            return copy.done
    finally:
        os.close(root)


@dataclass(slots=True)
class _Copy:
    """A copy that is being made."""

    tape: Tape
    rename: tuple[str, str] | None
    progress: Callable[[int], None]
    done: Received = field(default_factory=Received)

    def parts(self, name: str) -> tuple[str, ...]:
        """Where an entry goes."""
        found = _parts(name)
        if self.rename is None or not found:
            return found
        if found[0] != self.rename[0]:
            raise _leads_out(name)
        return (self.rename[1], *found[1:])


def _parts(name: str) -> tuple[str, ...]:
    path = PurePosixPath(name)
    if path.is_absolute() or ".." in path.parts or "\0" in name:
        raise _leads_out(name)
    return path.parts


def _leads_out(name: str) -> ClusterRefusedError:
    return ClusterRefusedError(
        f"the sandbox sent an entry {name!r} that leads out of the copy; nothing more was written",
        hint="Do not trust what is in this sandbox.",
    )


def _write(root: int, parts: tuple[str, ...], copy: _Copy, entry: Entry) -> None:
    if entry.kind is Kind.FOLDER:
        with _opened(root, parts, make=True) as here:
            os.fchmod(here, entry.mode | 0o700)  # what is in it is still to be written
        copy.done.entries += 1
        return
    reason = _refusal(entry, parts)
    if reason:
        copy.done.refuse(f"{'/'.join(parts)}: {reason}")
        return
    with _opened(root, parts[:-1], make=True) as here:
        if entry.kind is Kind.SYMLINK:
            _remove(here, parts[-1])
            os.symlink(entry.link, parts[-1], dir_fd=here)
        elif entry.kind is Kind.HARD_LINK:
            _link(root, copy.parts(entry.link), here, parts[-1])
        else:
            copy.done.bytes += _file(here, parts[-1], copy, entry)
    copy.done.entries += 1


def _refusal(entry: Entry, parts: tuple[str, ...]) -> str:
    """Why an entry is not made; empty when it may be."""
    if entry.kind is Kind.DEVICE:
        return "it is a device or a pipe"
    if entry.kind is Kind.SYMLINK and (not entry.link or leads_out(entry.link, parts)):
        return f"it is a link that leads out of the copy, to {entry.link}"
    return ""


def _link(root: int, source: tuple[str, ...], here: int, name: str) -> None:
    if not source:
        raise refused("a link in it leads nowhere")
    with _opened(root, source[:-1]) as there:
        _remove(here, name)
        os.link(source[-1], name, src_dir_fd=there, dst_dir_fd=here, follow_symlinks=False)


def _file(here: int, name: str, copy: _Copy, entry: Entry) -> int:
    short = os.fsencode(name)[:_LONGEST_PARTIAL].decode("utf-8", "ignore")
    partial = f".{short}.holdfast-partial"
    _remove(here, partial)
    written = 0
    try:
        with os.fdopen(os.open(partial, _FILE, 0o600, dir_fd=here), "wb", buffering=0) as target:
            for piece in copy.tape.content():
                _write_whole(target.fileno(), piece)
                written += len(piece)
                copy.progress(len(piece))
            os.fchmod(target.fileno(), entry.mode)
            os.utime(target.fileno(), (entry.time, entry.time))
        os.replace(partial, name, src_dir_fd=here, dst_dir_fd=here)
    except BaseException:
        _remove(here, partial)
        raise
    return written


def _write_whole(descriptor: int, piece: memoryview) -> None:
    """A disk that is nearly full takes a part first, and says why only when asked again."""
    while piece:
        piece = piece[os.write(descriptor, piece) :]


@contextmanager
def _opened(root: int, parts: tuple[str, ...], *, make: bool = False) -> Iterator[int]:
    """A folder below the root, entered step by step and never through a link."""
    here = os.dup(root)
    try:
        for part in parts:
            if make:
                with suppress(FileExistsError):
                    os.mkdir(part, 0o755, dir_fd=here)
            inner = os.open(part, _FOLDER, dir_fd=here)
            os.close(here)
            here = inner
        yield here
    finally:
        os.close(here)


def _remove(here: int, name: str) -> None:
    with suppress(FileNotFoundError):
        os.unlink(name, dir_fd=here)


@contextmanager
def _translated(folder: Path) -> Iterator[None]:
    try:
        yield
    except HoldfastError:
        raise
    except (ValueError, OverflowError) as error:
        raise refused(f"a name or time in it cannot be had on this machine ({error})") from error
    except OSError as error:
        if error.errno in _NO_SPACE:
            raise DiskFullError(f"there is no space left for the copy in {folder}") from error
        where = f"{folder}/{error.filename}" if isinstance(error.filename, str) else str(folder)
        raise UsageError(f"{where} cannot be written: {error.strerror}") from error
