"""Unpack downloads onto the local disk, with constant memory.

A sandbox is not trusted. Unpacking stops at an entry with an absolute path, with `..` in its path, or outside
the requested copy. It never follows a link: each directory is opened relative to its parent's descriptor. It
never adds to a directory of the user that is not empty, and never changes the permissions of a directory that
exists. A file gets its name after its content is complete, and a new directory after all its files.
"""

from __future__ import annotations

import os
import shlex
import shutil
import stat
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from itertools import chain
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, BinaryIO

from holdfast import home
from holdfast.client.archive import is_escaping_link
from holdfast.errors import (
    ApiRequestRejectedError,
    DiskFullError,
    HoldfastError,
    TemporaryError,
    UsageError,
)
from holdfast.images import TarEntryKind, TarReader

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from holdfast.client.local_copies import LocalCopies
    from holdfast.images import TarEntry

_CHUNK_SIZE = 1 << 20
_MAX_LISTED = 1000
_MAX_PARTIAL_NAME = 200
_PARTIAL_SUFFIX = ".holdfast-partial"
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
        is_merged: whether the copy is a directory that existed before, named by the caller.
    """

    entries: int = 0
    bytes: int = 0
    is_merged: bool = False
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
    merge: bool = False,
    copies: LocalCopies | None = None,
    progress: Callable[[int], None] = lambda _: None,
) -> UnpackResult:
    """Write the entries of an archive below a directory.

    With `rename`, a new copy gets its name at the end: after an interruption, a repeated call does not find a
    directory to copy into.

    Args:
        archive: the archive, read as a stream.
        directory: an existing directory.
        rename: the name that all entries must start with, and the name to replace it with.
        merge: the copy of a directory is `directory` itself, if that is an earlier copy or empty. Needs
            `rename` and `copies`.
        copies: the directories that earlier copies created. Without it, no existing directory is merged.
        progress: called with the number of bytes of each chunk.

    Raises:
        ApiRequestRejectedError: the archive is invalid, or an entry leads out of the copy.
        UsageError: an entry cannot be written, or the copy would be merged with another directory.
        DiskFullError: the disk is full.
    """
    try:
        root = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        raise UsageError(f"{directory}: cannot be written: {error.strerror}") from error
    try:
        with _translate_errors(directory):
            reader = TarReader(iter(partial(archive.read, _CHUNK_SIZE), b""), invalid_archive_error)
            entries = reader.entries()
            first = next(entries, None)
            unpacking = _Unpacking(reader, chain([first] if first else [], entries), rename, progress)
            if rename is None:
                return _write_entries(root, unpacking)
            is_directory = first is not None and first.kind is TarEntryKind.DIRECTORY
            if merge and is_directory and copies is not None and copies.is_mergeable(root):
                copies.add(root)
                unpacking.depth, unpacking.result.is_merged = 1, True
                return _write_entries(root, unpacking)
            # Not only if the archive starts with a directory: its next entries could be below this name.
            if _is_directory(root, rename[1]):
                _check_mergeable(root, directory, rename[1], copies)
                return _write_entries(root, unpacking)
            if _exists(root, rename[1]):
                return _write_entries(root, unpacking)
            return _write_new_copy(root, unpacking, rename, copies)
    finally:
        os.close(root)


def invalid_archive_error(reason: str) -> HoldfastError:
    """Return the error for an archive that cannot be read."""
    if reason == TarReader.INCOMPLETE:
        return TemporaryError(
            f"the archive is incomplete: {reason}", hint="Run the same command again; the copy starts over."
        )
    if reason == TarReader.SPARSE:
        return ApiRequestRejectedError(
            f"archive from the sandbox: {reason}; the copy was stopped",
            hint="Use GNU tar or busybox in the sandbox, and remove `--sparse` from its TAR_OPTIONS.",
        )
    return ApiRequestRejectedError(
        f"invalid archive from the sandbox: {reason}; the copy was stopped",
        hint="Do not trust this sandbox: it does not run a regular tar program.",
    )


def _check_mergeable(root: int, path: Path, name: str, copies: LocalCopies | None) -> None:
    with _open_directory(root, (name,)) as directory:
        if copies is None or not copies.is_mergeable(directory):
            target = path / name
            kept, moved = shlex.quote(str(target)), shlex.quote(f"{target}.old")
            raise UsageError(
                f"{target}: not empty, and not an earlier copy of the same source; nothing was copied",
                hint=f"Choose another target, or run `mv {kept} {moved}`, then run the same command again.",
            )
        copies.add(directory)


def _write_new_copy(
    root: int, unpacking: _Unpacking, rename: tuple[str, str], copies: LocalCopies | None
) -> UnpackResult:
    partial = _partial_name(rename[1])
    _remove_tree(root, partial)
    unpacking.rename = (rename[0], partial)
    try:
        result = _write_entries(root, unpacking)
        if copies is not None and _is_directory(root, partial):
            with _open_directory(root, (partial,)) as directory:
                copies.add(directory)
        if _exists(root, partial):
            os.rename(partial, rename[1], src_dir_fd=root, dst_dir_fd=root)
    except BaseException:
        _remove_tree(root, partial)
        raise
    result.skipped[:] = [_show_final_name(message, partial, rename[1]) for message in result.skipped]
    return result


def _write_entries(root: int, unpacking: _Unpacking) -> UnpackResult:
    for entry in unpacking.entries:
        parts = unpacking.target_parts(entry.name)
        if len(parts) > unpacking.depth:
            _write_entry(root, parts, unpacking, entry)
        elif unpacking.depth and entry.kind is not TarEntryKind.DIRECTORY:
            raise _escaping_entry_error(entry.name)
        else:
            unpacking.result.entries += unpacking.depth
    return unpacking.result


def _show_final_name(message: str, partial: str, name: str) -> str:
    return name + message.removeprefix(partial) if message.startswith(partial) else message


def _partial_name(name: str) -> str:
    """Name of a file or directory until it is complete: an interrupted copy never looks finished."""
    short = os.fsencode(name)[:_MAX_PARTIAL_NAME].decode("utf-8", "ignore")
    return f".{short}{_PARTIAL_SUFFIX}"


def _exists(directory: int, name: str) -> bool:
    try:
        os.lstat(name, dir_fd=directory)
    except FileNotFoundError:
        return False
    return True


def _is_directory(directory: int, name: str) -> bool:
    return _exists(directory, name) and stat.S_ISDIR(os.lstat(name, dir_fd=directory).st_mode)


def _remove_tree(directory: int, name: str) -> None:
    """Remove what an interrupted copy has left, without following links."""
    try:
        _unlink_if_exists(directory, name)
    except (IsADirectoryError, PermissionError):  # POSIX allows both for a directory
        shutil.rmtree(name, dir_fd=directory)


@dataclass(slots=True)
class _Unpacking:
    reader: TarReader
    entries: Iterator[TarEntry]
    rename: tuple[str, str] | None
    progress: Callable[[int], None]
    depth: int = 0  # number of leading components of each path that stand for the root
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
    below_root = parts[unpacking.depth :]
    if entry.kind is TarEntryKind.DIRECTORY:
        with _open_directory(root, below_root[:-1], create=True) as parent:
            _make_directory(parent, below_root[-1], entry.mode | 0o700)  # its entries are still to be written
        unpacking.result.entries += 1
        return
    reason = _skip_reason(entry, parts)
    if reason:
        unpacking.result.skip(f"{'/'.join(parts)}: {reason}")
        return
    with _open_directory(root, below_root[:-1], create=True) as directory:
        if entry.kind is TarEntryKind.SYMLINK:
            _unlink_if_exists(directory, parts[-1])
            os.symlink(entry.link_target, parts[-1], dir_fd=directory)
        elif entry.kind is TarEntryKind.HARD_LINK:
            # The target is checked like a name: a hard link could otherwise expose a file outside the copy.
            link_target = unpacking.target_parts(entry.link_target)[unpacking.depth :]
            _write_hard_link(root, link_target, directory, parts[-1])
        else:
            unpacking.result.bytes += _write_file(directory, parts[-1], unpacking, entry)
    unpacking.result.entries += 1


def _make_directory(parent: int, name: str, mode: int) -> None:
    """Create a directory; an existing one keeps its mode."""
    try:
        os.mkdir(name, mode, dir_fd=parent)
    except FileExistsError:
        # An error for a file or a link.
        with _open_directory(parent, (name,)):
            return
    with _open_directory(parent, (name,)) as directory:
        os.fchmod(directory, mode)  # without the umask


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
        path = str(directory)
        if isinstance(error.filename, str):
            name = error.filename
            if name.endswith(_PARTIAL_SUFFIX):
                name = name.removesuffix(_PARTIAL_SUFFIX).removeprefix(".")
            path = f"{directory}/{name}"
        raise UsageError(f"{path}: cannot be written: {error.strerror}") from error
