"""Files below one folder, for clients that name them by a path: nothing outside of it is read or written.

A path is taken from the folder on, with or without a slash in front. Links are followed as far as they stay
inside. Not here: HTTP.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from holdfast.runtime.refusal import Refusal

if TYPE_CHECKING:
    from collections.abc import Iterable

_NEW_FILE = 0o666


class Files:
    """What clients may see and change."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def place(self, path: str) -> Path:
        """Where a client's path leads, links followed; refused where that is outside."""
        if "\0" in path:
            raise Refusal(400, "a path has no zero bytes in it")
        root = self._root.resolve()
        try:
            found = (root / path.lstrip("/")).resolve()
        except (OSError, RuntimeError) as error:
            raise Refusal(400, f"{path!r} leads nowhere: {error}") from error
        if found != root and root not in found.parents:
            raise Refusal(403, f"{path!r} is outside of {self._root}")
        return found

    def exists(self, path: str) -> bool:
        """Whether there is something at a path."""
        try:
            return self.place(path).exists()
        except OSError:
            return False

    def listing(self, path: str) -> list[dict[str, Any]]:
        """What is in a folder, by name."""
        folder = self.place(path)
        with _answered(path), os.scandir(folder) as entries:
            return [_entry(entry) for entry in sorted(entries, key=lambda entry: entry.name)]

    def open(self, path: str) -> int:
        """An open descriptor of a regular file; the caller closes it."""
        place = self.place(path)
        with _answered(path):
            # A pipe without a writer must not hold us up.
            descriptor = os.open(place, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            os.close(descriptor)
            raise Refusal(400, f"{path!r} is not a file")
        return descriptor

    def write(self, path: str, content: Iterable[bytes]) -> int:
        """Put a file in place once all of it has come; return its size."""
        place = self.place(path)
        if place == self._root.resolve() or path.endswith("/"):
            raise Refusal(400, f"{path!r} does not name a file")
        with _answered(path):
            place.parent.mkdir(parents=True, exist_ok=True)
            if place.is_dir():
                raise Refusal(400, f"{path!r} is a folder")
            descriptor, name = tempfile.mkstemp(prefix=".upload-", dir=place.parent)
            try:
                with open(descriptor, "wb") as file:  # noqa: PTH123 (a descriptor)
                    size = sum(file.write(piece) for piece in content)
                Path(name).chmod(_mode(place))
                Path(name).rename(place)
            except BaseException:
                with contextlib.suppress(FileNotFoundError):
                    Path(name).unlink()
                raise
        return size


class _answered:  # noqa: N801 (reads like the function that it is)
    """Turns what the system says about a path into an answer."""

    _STATUS = (
        (FileNotFoundError, 404, "is not there"),
        (NotADirectoryError, 400, "is not a folder"),
        (IsADirectoryError, 400, "is a folder"),
        (PermissionError, 403, "may not be used"),
    )

    def __init__(self, path: str) -> None:
        self._path = path

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if not isinstance(error, OSError) or isinstance(error, ConnectionError | TimeoutError):
            return
        for known, status, words in self._STATUS:
            if isinstance(error, known):
                raise Refusal(status, f"{self._path!r} {words}") from error
        full = error.errno in (errno.ENOSPC, errno.EDQUOT)
        raise Refusal(507 if full else 400, f"{self._path!r}: {error.strerror}") from error


def _entry(entry: os.DirEntry[str]) -> dict[str, Any]:
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


def _mode(place: Path) -> int:
    """A file that is replaced keeps its mode; a new one gets what any new file gets."""
    try:
        return stat.S_IMODE(place.stat().st_mode)
    except FileNotFoundError:
        mask = os.umask(0o022)
        os.umask(mask)
        return _NEW_FILE & ~mask
