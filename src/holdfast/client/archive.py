"""Tar archives of local files for uploads, packed with constant memory.

Symbolic links are copied as links; links that lead out of the copy, pipes and devices are skipped and
reported. Owners are not copied.
"""

from __future__ import annotations

import os
import stat
import tarfile
from itertools import takewhile
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

from holdfast.errors import TemporaryError, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path


def is_escaping_link(target: str, parts: tuple[str, ...]) -> bool:
    """Whether a symbolic link may lead out of the copy.

    `..` is only allowed at the start of the target: after another link it could lead anywhere.

    Args:
        target: the link's target.
        parts: the link's path, starting with the name of the copy. A link that is the whole copy escapes.
    """
    link = PurePosixPath(target)
    if len(parts) == 1:
        return True
    upwards = sum(1 for _ in takewhile(lambda part: part == "..", link.parts))
    return link.is_absolute() or ".." in link.parts[upwards:] or upwards > len(parts) - 2


CHUNK_SIZE = 1 << 20
_BLOCK_SIZE = tarfile.BLOCKSIZE
_UNSUPPORTED_TYPES = (stat.S_ISFIFO, stat.S_ISSOCK, stat.S_ISBLK, stat.S_ISCHR)


def content_size(source: Path) -> int:
    """Number of bytes of content in a file or directory, for a progress display."""
    status = source.lstat()
    if not stat.S_ISDIR(status.st_mode):
        return status.st_size if stat.S_ISREG(status.st_mode) else 0
    total = 0
    for directory, _, names in os.walk(source):
        for name in names:
            try:
                entry = os.lstat(os.path.join(directory, name))  # noqa: PTH118 (pathlib is slow for large trees)
            except OSError:
                continue
            total += entry.st_size if stat.S_ISREG(entry.st_mode) else 0
    return total


def pack(
    source: Path, name: str, on_skip: Callable[[str], None], *, contents_only: bool = False
) -> Iterator[bytes]:
    """Iterate over the chunks of an archive.

    Args:
        source: file or directory to pack.
        name: its name in the archive.
        on_skip: called with a message for each entry that cannot be copied.
        contents_only: pack the entries of a directory with their names in it, without the directory.

    Raises:
        UsageError: a file cannot be read.
        TemporaryError: a file was truncated meanwhile.
    """
    path = source
    try:
        for path, inside in _walk(source, name):
            status = path.lstat()
            if any(is_type(status.st_mode) for is_type in _UNSUPPORTED_TYPES):
                on_skip(f"{path}: not a file, directory or link")
                continue
            if stat.S_ISLNK(status.st_mode) and is_escaping_link(
                link := str(path.readlink()), tuple(inside.split("/"))
            ):
                on_skip(f"{path}: link out of the copy, to {link}")
                continue
            if not contents_only:
                yield from _pack_entry(path, inside, status)
            elif inside != name:
                yield from _pack_entry(path, inside.removeprefix(f"{name}/"), status)
    except OSError as error:
        raise UsageError(f"{error.filename or path}: cannot be read: {error.strerror}") from error
    yield b"\0" * (2 * _BLOCK_SIZE)


def _walk(source: Path, name: str) -> Iterator[tuple[Path, str]]:
    yield source, name
    if source.is_symlink() or not source.is_dir():
        return
    for child in sorted(source.iterdir()):
        yield from _walk(child, f"{name}/{child.name}")


def _pack_entry(path: Path, name: str, stat_result: os.stat_result) -> Iterator[bytes]:
    entry = tarfile.TarInfo(name)
    entry.mode = stat.S_IMODE(stat_result.st_mode) & 0o777
    entry.mtime = int(stat_result.st_mtime)
    if stat.S_ISDIR(stat_result.st_mode):
        entry.type = tarfile.DIRTYPE
    elif stat.S_ISLNK(stat_result.st_mode):
        entry.type, entry.linkname = tarfile.SYMTYPE, str(path.readlink())
    else:
        entry.size = stat_result.st_size
    yield entry.tobuf(tarfile.PAX_FORMAT, errors="surrogateescape")
    if entry.isreg():
        yield from _file_chunks(path, entry.size)


def _file_chunks(path: Path, size: int) -> Iterator[bytes]:
    """Exactly `size` bytes, as the header announced, and the padding."""
    remaining = size
    with path.open("rb") as file:
        while remaining:
            chunk = file.read(min(CHUNK_SIZE, remaining))
            if not chunk:
                raise TemporaryError(
                    f"{path}: truncated while it was copied", hint="Run the same command again."
                )
            remaining -= len(chunk)
            yield chunk
    yield b"\0" * (-size % _BLOCK_SIZE)
