"""Tar archives of copies: pack local files for an upload, and unpack a download onto the local disk.

Both directions use constant memory. Symbolic links are copied as links; links that lead out of the copy,
pipes and devices are skipped and reported. Owners are not copied.

A sandbox is not trusted. Unpacking stops at an entry with an absolute path, with `..` in its path, or outside
the requested copy. It never follows a link: each directory is opened relative to its parent's descriptor. A
file gets its name after its content is complete, and a new directory after all its files.
"""

from __future__ import annotations

import os
import shutil
import stat
import tarfile
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from itertools import takewhile
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, BinaryIO

from holdfast import home
from holdfast.client.tar_reader import TarEntryKind, TarReader, invalid_archive_error
from holdfast.errors import ApiRequestRejectedError, DiskFullError, HoldfastError, TemporaryError, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from holdfast.client.tar_reader import TarEntry


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


def pack(source: Path, name: str, on_skip: Callable[[str], None]) -> Iterator[bytes]:
    """Iterate over the chunks of an archive.

    Args:
        source: file or directory to pack.
        name: its name in the archive.
        on_skip: called with a message for each entry that cannot be copied.

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
            yield from _pack_entry(path, inside, status)
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


_MAX_LISTED = 1000
_MAX_PARTIAL_NAME = 200
_DIRECTORY_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
# O_EXCL: the file must be new, so that nothing is written through an existing file or link.
_FILE_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


@dataclass(slots=True)
class UnpackResult:
    """Result of unpacking.

    Attributes:
        entries: number of entries written.
        bytes: bytes of content written.
        skipped: messages for skipped entries; after 1,000 of them only a count.
    """

    entries: int = 0
    bytes: int = 0
    skipped: list[str] = field(default_factory=list)
    _unlisted: int = 0

    def skip(self, message: str) -> None:
        """Record a skipped entry, in bounded memory."""
        if len(self.skipped) < _MAX_LISTED:
            self.skipped.append(message)
            return
        self._unlisted += 1
        self.skipped[_MAX_LISTED:] = [f"and {self._unlisted} more"]


def unpack(
    archive: BinaryIO,
    directory: Path,
    *,
    rename: tuple[str, str] | None = None,
    progress: Callable[[int], None] = lambda _: None,
) -> UnpackResult:
    """Write the entries of an archive below a directory.

    With `rename`, a new copy gets its name at the end: after an interruption, a repeated call does not find a
    directory to copy into.

    Args:
        archive: the archive, read as a stream.
        directory: an existing directory.
        rename: the name that all entries must start with, and the name to replace it with.
        progress: called with the number of bytes of each chunk.

    Raises:
        ApiRequestRejectedError: the archive is invalid, or an entry leads out of the copy.
        UsageError: an entry cannot be written.
        DiskFullError: the disk is full.
    """
    try:
        root = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        raise UsageError(f"{directory}: cannot be written: {error.strerror}") from error
    try:
        with _translate_errors(directory):
            if rename is None or _exists(root, rename[1]):
                return _write_entries(root, _Unpacking(TarReader(archive), rename, progress))
            partial = _partial_name(rename[1])
            _remove_tree(root, partial)
            try:
                result = _write_entries(root, _Unpacking(TarReader(archive), (rename[0], partial), progress))
                if _exists(root, partial):
                    os.rename(partial, rename[1], src_dir_fd=root, dst_dir_fd=root)
            except BaseException:
                _remove_tree(root, partial)
                raise
            result.skipped[:] = [_show_final_name(message, partial, rename[1]) for message in result.skipped]
            return result
    finally:
        os.close(root)


def _write_entries(root: int, unpacking: _Unpacking) -> UnpackResult:
    for entry in unpacking.reader.entries():
        if parts := unpacking.target_parts(entry.name):
            _write_entry(root, parts, unpacking, entry)
    return unpacking.result


def _show_final_name(message: str, partial: str, name: str) -> str:
    return name + message.removeprefix(partial) if message.startswith(partial) else message


def _partial_name(name: str) -> str:
    """Name of a file or directory until it is complete: an interrupted copy never looks finished."""
    short = os.fsencode(name)[:_MAX_PARTIAL_NAME].decode("utf-8", "ignore")
    return f".{short}.holdfast-partial"


def _exists(directory: int, name: str) -> bool:
    try:
        os.lstat(name, dir_fd=directory)
    except FileNotFoundError:
        return False
    return True


def _remove_tree(directory: int, name: str) -> None:
    """Remove what an interrupted copy has left, without following links."""
    try:
        _unlink_if_exists(directory, name)
    except (IsADirectoryError, PermissionError):  # POSIX allows both for a directory
        shutil.rmtree(name, dir_fd=directory)


@dataclass(slots=True)
class _Unpacking:
    reader: TarReader
    rename: tuple[str, str] | None
    progress: Callable[[int], None]
    result: UnpackResult = field(default_factory=UnpackResult)

    def target_parts(self, name: str) -> tuple[str, ...]:
        """Path of an entry below the directory."""
        path = PurePosixPath(name)
        if path.is_absolute() or ".." in path.parts or "\0" in name:
            raise _escaping_entry_error(name)
        if self.rename is None or not path.parts:
            return path.parts
        if path.parts[0] != self.rename[0]:
            raise _escaping_entry_error(name)
        return (self.rename[1], *path.parts[1:])


def _escaping_entry_error(name: str) -> ApiRequestRejectedError:
    return ApiRequestRejectedError(
        f"entry {name!r} of the archive leads out of the copy; the copy was stopped",
        hint="Do not trust this sandbox: its programs tried to write outside the copy.",
    )


def _write_entry(root: int, parts: tuple[str, ...], unpacking: _Unpacking, entry: TarEntry) -> None:
    if entry.kind is TarEntryKind.DIRECTORY:
        with _open_directory(root, parts, create=True) as directory:
            os.fchmod(directory, entry.mode | 0o700)  # its entries are still to be written
        unpacking.result.entries += 1
        return
    reason = _skip_reason(entry, parts)
    if reason:
        unpacking.result.skip(f"{'/'.join(parts)}: {reason}")
        return
    with _open_directory(root, parts[:-1], create=True) as directory:
        if entry.kind is TarEntryKind.SYMLINK:
            _unlink_if_exists(directory, parts[-1])
            os.symlink(entry.link_target, parts[-1], dir_fd=directory)
        elif entry.kind is TarEntryKind.HARD_LINK:
            # The target is checked like a name: a hard link could otherwise expose a file outside the copy.
            _write_hard_link(root, unpacking.target_parts(entry.link_target), directory, parts[-1])
        else:
            unpacking.result.bytes += _write_file(directory, parts[-1], unpacking, entry)
    unpacking.result.entries += 1


def _skip_reason(entry: TarEntry, parts: tuple[str, ...]) -> str:
    """Why an entry is skipped; empty if it is written."""
    if entry.kind is TarEntryKind.DEVICE:
        return "device or pipe"
    if entry.kind is TarEntryKind.SYMLINK and (
        not entry.link_target or is_escaping_link(entry.link_target, parts)
    ):
        return f"link out of the copy, to {entry.link_target}"
    return ""


def _write_hard_link(root: int, source: tuple[str, ...], directory: int, name: str) -> None:
    if not source:
        raise invalid_archive_error("a hard link has no target")
    with _open_directory(root, source[:-1]) as source_directory:
        _unlink_if_exists(directory, name)
        # Without following links: the source may be a symbolic link to a file outside the copy.
        os.link(source[-1], name, src_dir_fd=source_directory, dst_dir_fd=directory, follow_symlinks=False)


def _write_file(directory: int, name: str, unpacking: _Unpacking, entry: TarEntry) -> int:
    partial = _partial_name(name)
    _unlink_if_exists(directory, partial)
    written = 0
    try:
        with os.fdopen(os.open(partial, _FILE_FLAGS, 0o600, dir_fd=directory), "wb", buffering=0) as target:
            for piece in unpacking.reader.content():
                _write_all(target.fileno(), piece)
                written += len(piece)
                unpacking.progress(len(piece))
            # Last: until the content is complete, mode 0600 keeps other users from reading it.
            os.fchmod(target.fileno(), entry.mode)
            os.utime(target.fileno(), (entry.mtime, entry.mtime))
        os.replace(partial, name, src_dir_fd=directory, dst_dir_fd=directory)
    except BaseException:
        _unlink_if_exists(directory, partial)
        raise
    return written


def _write_all(descriptor: int, piece: memoryview) -> None:
    """Write all bytes: on a nearly full disk, one call writes a part and only the next one fails."""
    while piece:
        piece = piece[os.write(descriptor, piece) :]


@contextmanager
def _open_directory(root: int, parts: tuple[str, ...], *, create: bool = False) -> Iterator[int]:
    """Open a directory below the root component by component, without following links."""
    current = os.dup(root)
    try:
        # O_NOFOLLOW for each component: the archive may contain a link and then a path through it.
        for part in parts:
            if create:
                with suppress(FileExistsError):
                    os.mkdir(part, 0o755, dir_fd=current)
            child = os.open(part, _DIRECTORY_FLAGS, dir_fd=current)
            os.close(current)
            current = child
        yield current
    finally:
        os.close(current)


def _unlink_if_exists(directory: int, name: str) -> None:
    with suppress(FileNotFoundError):
        os.unlink(name, dir_fd=directory)


@contextmanager
def _translate_errors(directory: Path) -> Iterator[None]:
    try:
        yield
    except HoldfastError:
        raise
    except (ValueError, OverflowError) as error:
        raise invalid_archive_error(f"a name or time is not valid on this machine ({error})") from error
    except OSError as error:
        if error.errno in home.NO_SPACE_ERRNOS:
            raise DiskFullError(f"{directory}: no space left for the copy") from error
        path = f"{directory}/{error.filename}" if isinstance(error.filename, str) else str(directory)
        raise UsageError(f"{path}: cannot be written: {error.strerror}") from error
