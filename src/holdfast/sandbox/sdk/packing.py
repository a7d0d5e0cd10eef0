"""A file or a folder of this machine as the chunks of a tar archive: flat memory, whatever its size.

Symbolic links go as links; those that lead out of the copy, pipes and devices stay behind and are named.
Owners do not travel: in the sandbox, all of it belongs to its own user. Not here: sending (copying.py).
"""

from __future__ import annotations

import os
import stat
import tarfile
from typing import TYPE_CHECKING

from holdfast.errors import TemporaryError, UsageError
from holdfast.sandbox.sdk.links import leads_out

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

CHUNK = 1 << 20
_BLOCK = tarfile.BLOCKSIZE
_NAMELESS = (stat.S_ISFIFO, stat.S_ISSOCK, stat.S_ISBLK, stat.S_ISCHR)


def size_of(source: Path) -> int:
    """How many bytes of content there are, for showing how far a copy is."""
    found = source.lstat()
    if not stat.S_ISDIR(found.st_mode):
        return found.st_size if stat.S_ISREG(found.st_mode) else 0
    total = 0
    for folder, _, names in os.walk(source):
        for name in names:
            try:
                entry = os.lstat(os.path.join(folder, name))  # noqa: PTH118 (a large tree, many times)
            except OSError:
                continue
            total += entry.st_size if stat.S_ISREG(entry.st_mode) else 0
    return total


def packed(source: Path, name: str, left_out: Callable[[str], None]) -> Iterator[bytes]:
    """The archive of `source`, called `name` in it; `left_out` is told of what cannot travel."""
    for path, inside in _entries(source, name):
        found = path.lstat()
        if any(is_kind(found.st_mode) for is_kind in _NAMELESS):
            left_out(f"{path} is neither a file, a folder nor a link")
            continue
        if stat.S_ISLNK(found.st_mode) and leads_out(link := str(path.readlink()), tuple(inside.split("/"))):
            left_out(f"{path} is a link that leads out of the copy, to {link}")
            continue
        yield from _entry(path, inside, found)
    yield b"\0" * (2 * _BLOCK)


def _entries(source: Path, name: str) -> Iterator[tuple[Path, str]]:
    yield source, name
    if source.is_symlink() or not source.is_dir():
        return
    try:
        children = sorted(source.iterdir())
    except OSError as error:
        raise UsageError(f"{source} cannot be read: {error.strerror}") from error
    for child in children:
        yield from _entries(child, f"{name}/{child.name}")


def _entry(path: Path, inside: str, found: os.stat_result) -> Iterator[bytes]:
    entry = tarfile.TarInfo(inside)
    entry.mode = stat.S_IMODE(found.st_mode) & 0o777
    entry.mtime = int(found.st_mtime)
    if stat.S_ISDIR(found.st_mode):
        entry.type = tarfile.DIRTYPE
    elif stat.S_ISLNK(found.st_mode):
        entry.type, entry.linkname = tarfile.SYMTYPE, str(path.readlink())
    else:
        entry.size = found.st_size
    yield entry.tobuf(tarfile.PAX_FORMAT, errors="surrogateescape")
    if entry.isreg():
        yield from _content(path, entry.size)


def _content(path: Path, size: int) -> Iterator[bytes]:
    """Just as many bytes as the header promised: a file that shrinks meanwhile cannot be sent."""
    left = size
    try:
        with path.open("rb") as file:
            while left:
                chunk = file.read(min(CHUNK, left))
                if not chunk:
                    raise TemporaryError(
                        f"{path} became shorter while it was copied", hint="Run the same command again."
                    )
                left -= len(chunk)
                yield chunk
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}") from error
    yield b"\0" * (-size % _BLOCK)
