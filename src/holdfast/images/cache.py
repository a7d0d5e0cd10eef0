"""The cache of finished build stages: a stage is there as a whole under its key, or not at all.

A stage is built in a folder of its own and renamed into place, so that an interruption leaves nothing
that a later run could take for finished. Not here: when a stage is stale; its key says that.
"""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

from holdfast import home
from holdfast.errors import DiskFullError, LockedError, PermanentError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_DISK_TROUBLE = (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES, errno.EPERM)

_KEEP = 2
"""Finished versions of a stage that stay: the newest, and the one before for a quick way back."""


class Cache:
    """Finished stages of image builds, below the cache directory."""

    def __init__(self, root: Path | None = None) -> None:
        self.root = root or home.cache_dir() / "images"

    def find(self, stage: str, key: str) -> Path | None:
        """The folder of a finished stage, or None."""
        folder = self.root / stage / key
        return folder if folder.is_dir() else None

    @property
    def refreshed(self) -> str:
        """When new packages were last asked for; part of the key of whatever comes from a package mirror."""
        try:
            return (self.root / "refreshed").read_text()
        except OSError:
            return ""

    @contextmanager
    def refreshing(self) -> Iterator[None]:
        """Ask for new packages; when that fails, what was there before counts again."""
        before = self.refreshed
        home.write_atomic(self.root / "refreshed", time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()))
        try:
            yield
        except BaseException:
            home.write_atomic(self.root / "refreshed", before)
            raise

    def log_path(self, stage: str) -> Path:
        """Where the tools of a stage write what they print."""
        return home.private_dir(self.root / "logs") / f"{stage}.log"

    @contextmanager
    def building(self, stage: str, key: str) -> Iterator[Path]:
        """A folder to build a stage in; becomes the finished stage when the block ends well."""
        shelf = _made(self.root / stage)
        unfinished = shelf / f".building-{key}-{os.getpid()}"
        shutil.rmtree(unfinished, ignore_errors=True)
        unfinished.mkdir()
        try:
            yield unfinished
            finished = shelf / key
            if not finished.is_dir():
                unfinished.rename(finished)
        except OSError as error:
            if error.errno not in _DISK_TROUBLE:
                raise
            raise _explained(error, self.root) from error
        finally:
            shutil.rmtree(unfinished, ignore_errors=True)
        self._forget_old(shelf)

    @contextmanager
    def locked(self) -> Iterator[None]:
        """One build at a time in one cache; also clears what killed builds left behind."""
        _made(self.root)
        with (self.root / "lock").open("a+") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                file.seek(0)
                raise LockedError(
                    f"another image build is at work (process {file.read().strip() or 'unknown'})"
                ) from error
            file.truncate(0)
            file.write(str(os.getpid()))
            file.flush()
            for leftover in self.root.glob("*/.building-*"):
                shutil.rmtree(leftover, ignore_errors=True)
            yield

    def _forget_old(self, shelf: Path) -> None:
        finished = [folder for folder in shelf.iterdir() if not folder.name.startswith(".")]
        finished.sort(key=lambda folder: folder.stat().st_mtime, reverse=True)
        for folder in finished[_KEEP:]:
            shutil.rmtree(folder, ignore_errors=True)


def _made(folder: Path) -> Path:
    try:
        return home.private_dir(folder)
    except OSError as error:
        raise _explained(error, folder) from error


def _explained(error: OSError, root: Path) -> PermanentError:
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return DiskFullError(f"no space left in the image cache {root}")
    return PermanentError(
        f"the image cache {root} cannot be used: {error.strerror}", hint="HOLDFAST_CACHE moves it elsewhere."
    )
