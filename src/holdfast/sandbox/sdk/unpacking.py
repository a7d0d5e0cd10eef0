"""A tar archive from a sandbox onto this machine's disk, below one folder and nowhere else.

A sandbox is not trusted: names that are absolute, lead upwards or are not what was asked for end the copy;
links that lead out of the copy, and devices, are not made and are named. No step follows a link: every folder
is entered by its parent's descriptor. A file has its name only once it is whole. Not here: receiving
(copying.py).
"""

from __future__ import annotations

import os
import tarfile
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, BinaryIO

from holdfast.errors import ClusterRefusedError, DiskFullError, HoldfastError, TemporaryError, UsageError
from holdfast.sandbox.sdk.links import leads_out

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

_CHUNK = 1 << 20
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_NO_SPACE = (28, 122)


@dataclass(slots=True)
class Received:
    """What came out of an archive."""

    entries: int = 0
    bytes: int = 0
    refused: list[str] = field(default_factory=list)
    """what was not made, and why"""


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
        with _translated(folder), tarfile.open(fileobj=archive, mode="r|", bufsize=_CHUNK) as reader:
            tape = _Tape(reader, rename, progress)
            _write_all(root, tape)
            return tape.done
    finally:
        os.close(root)


@dataclass(slots=True)
class _Tape:
    """An archive that is being read."""

    reader: tarfile.TarFile
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


def _write_all(root: int, tape: _Tape) -> None:
    modes: list[tuple[tuple[str, ...], int]] = []
    for entry in tape.reader:
        parts = tape.parts(entry.name)
        if not parts:
            continue
        _write(root, parts, tape, entry)
        if entry.isdir():
            modes.append((parts, entry.mode & 0o777))
    # Folders get their modes last: one that nobody may write to must be filled first.
    for parts, mode in reversed(modes):
        with _opened(root, parts) as here:
            os.fchmod(here, mode | 0o700)


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


def _write(root: int, parts: tuple[str, ...], tape: _Tape, entry: tarfile.TarInfo) -> None:
    if entry.isdir():
        with _opened(root, parts, make=True):
            tape.done.entries += 1
        return
    reason = _refusal(entry, parts)
    if reason:
        tape.done.refused.append(f"{'/'.join(parts)}: {reason}")
        return
    with _opened(root, parts[:-1], make=True) as here:
        if entry.issym():
            _remove(here, parts[-1])
            os.symlink(entry.linkname, parts[-1], dir_fd=here)
        elif entry.islnk():
            _link(root, tape.parts(entry.linkname), here, parts[-1])
        else:
            tape.done.bytes += _file(here, parts[-1], tape, entry)
    tape.done.entries += 1


def _refusal(entry: tarfile.TarInfo, parts: tuple[str, ...]) -> str:
    """Why an entry is not made; empty when it may be."""
    if entry.isreg() or entry.islnk():
        return ""
    if not entry.issym():
        return "it is a device or a pipe"
    if leads_out(entry.linkname, parts):
        return f"it is a link that leads out of the copy, to {entry.linkname}"
    return ""


def _link(root: int, source: tuple[str, ...], here: int, name: str) -> None:
    with _opened(root, source[:-1]) as there:
        _remove(here, name)
        os.link(source[-1], name, src_dir_fd=there, dst_dir_fd=here, follow_symlinks=False)


def _file(here: int, name: str, tape: _Tape, entry: tarfile.TarInfo) -> int:
    source = tape.reader.extractfile(entry)
    assert source is not None  # noqa: S101 (it is a regular file)
    partial = f".{name[:200]}.holdfast-partial"
    _remove(here, partial)
    written = 0
    try:
        with os.fdopen(os.open(partial, _FILE, 0o600, dir_fd=here), "wb", buffering=0) as target:
            while chunk := source.read(_CHUNK):
                target.write(chunk)
                written += len(chunk)
                tape.progress(len(chunk))
            os.fchmod(target.fileno(), entry.mode & 0o777)
            os.utime(target.fileno(), (entry.mtime, entry.mtime))
        os.replace(partial, name, src_dir_fd=here, dst_dir_fd=here)
    except BaseException:
        _remove(here, partial)
        raise
    return written


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
    except tarfile.TarError as error:
        raise TemporaryError(
            f"the copy was cut short: {error}", hint="Run the same command again; it begins anew."
        ) from error
    except OSError as error:
        if error.errno in _NO_SPACE:
            raise DiskFullError(f"there is no space left for the copy in {folder}") from error
        where = f"{folder}/{error.filename}" if isinstance(error.filename, str) else str(folder)
        raise UsageError(f"{where} cannot be written: {error.strerror}") from error
