"""Files below one directory, for clients that address them by path; nothing outside of it is accessible.

Paths are relative to the directory, with or without a leading slash. Links are followed if they stay inside.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from holdfast.runtime.http_request import HTTPError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

_NEW_FILE_MODE = 0o666


class WorkspaceFiles:
    """Reads and writes files below one directory."""

    def __init__(self, root: Path) -> None:
        self._root = root
        # A process reads its umask only by setting it. Requests run in threads: two of them that set it at
        # the same time could leave the wrong one behind, so it is read once.
        mask = os.umask(0o077)
        os.umask(mask)
        self._new_file_mode = _NEW_FILE_MODE & ~mask

    def resolve(self, path: str) -> Path:
        """Return the real path of a client's path; reject paths outside of the directory."""
        if "\0" in path:
            raise HTTPError(400, "the path contains a null byte")
        root = self._root.resolve()
        try:
            resolved = (root / path.lstrip("/")).resolve()
        except RuntimeError as error:
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP)) from error
        # A link that changes after this check can still lead outside. Clients gain nothing by that: they may
        # run any command in the sandbox.
        if resolved != root and root not in resolved.parents:
            raise HTTPError(403, "Access denied")
        return resolved

    def exists(self, path: str) -> bool:
        """Report whether a path exists."""
        try:
            return self.resolve(path).exists()
        except OSError:
            return False

    def list_directory(self, path: str) -> list[dict[str, Any]]:
        """Return the entries of a directory, sorted by name."""
        with (
            _translate_os_errors(path, not_found="Path is not a directory"),
            os.scandir(self.resolve(path)) as entries,
        ):
            return [_directory_entry(entry) for entry in sorted(entries, key=lambda entry: entry.name)]

    def open(self, path: str) -> int:
        """Open a regular file and return its descriptor; the caller closes it."""
        with _translate_os_errors(path, not_found="File not found"):
            # O_NONBLOCK: opening a pipe without a writer would block.
            descriptor = os.open(self.resolve(path), os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            os.close(descriptor)
            raise HTTPError(404, "File not found")
        return descriptor

    def write(self, path: str, content: Iterable[bytes]) -> int:
        """Write a file atomically when its content is complete; return its size."""
        with _translate_os_errors(path):
            target = self.resolve(path)
            if target == self._root.resolve() or path.endswith("/"):
                raise HTTPError(400, f"{path!r} does not name a file")
            target.parent.mkdir(parents=True, exist_ok=True)
            if target.is_dir():
                raise HTTPError(400, f"{path!r} is a directory")
            # In the same directory: rename is atomic only within one file system.
            descriptor, name = tempfile.mkstemp(prefix=".upload-", dir=target.parent)
            try:
                with open(descriptor, "wb") as file:  # noqa: PTH123 (a descriptor)
                    size = sum(file.write(piece) for piece in content)
                # Before the rename: the file never appears with the mode 0600 of mkstemp.
                Path(name).chmod(self._file_mode(target))
                Path(name).rename(target)
            except BaseException:
                with contextlib.suppress(FileNotFoundError):
                    Path(name).unlink()
                raise
        return size

    def _file_mode(self, target: Path) -> int:
        """Return the mode of the file that is replaced, or the default mode of a new file."""
        try:
            return stat.S_IMODE(target.stat().st_mode)
        except FileNotFoundError:
            return self._new_file_mode


# Errors of a path that does not lead to an object of the expected kind.
_NOT_FOUND_ERRORS = {
    errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.ELOOP, errno.ENAMETOOLONG, errno.ENXIO, errno.EINVAL,
}  # fmt: skip


@contextlib.contextmanager
def _translate_os_errors(path: str, *, not_found: str | None = None) -> Iterator[None]:
    """Raise OS errors about a path as `HTTPError`; a lost connection to the client is not about the path.

    `not_found` is the message of a path that leads nowhere.
    """
    try:
        yield
    except (ConnectionError, TimeoutError):
        raise
    except PermissionError as error:
        raise HTTPError(403, "Access denied") from error
    except OSError as error:
        if not_found is not None and error.errno in _NOT_FOUND_ERRORS:
            raise HTTPError(404, not_found) from error
        is_full = error.errno in (errno.ENOSPC, errno.EDQUOT)
        raise HTTPError(507 if is_full else 400, f"{path!r}: {error.strerror}") from error


def _directory_entry(entry: os.DirEntry[str]) -> dict[str, Any]:
    try:
        status = entry.stat()
    except OSError:
        status = entry.stat(follow_symlinks=False)
    return {
        "name": entry.name,
        "size": status.st_size,
        "type": "directory" if stat.S_ISDIR(status.st_mode) else "file",
        "mod_time": status.st_mtime,
    }
