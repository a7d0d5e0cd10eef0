"""The cache of finished build stages, and the content hashes that are its keys.

The same inputs give the same key on every machine, from a clone and from a wheel.
"""

from __future__ import annotations

import errno
import hashlib
import os
import shutil
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import msgspec

from holdfast import home
from holdfast.errors import DiskFullError, PermanentError
from holdfast.workflow import FileLock, LockHolder

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path


_IGNORED_DIRECTORIES = {"__pycache__", ".mypy_cache", ".ruff_cache", ".pytest_cache"}


def cache_key(*parts: Any) -> str:
    """Return a short key for JSON values; represent files by `tree_hashes`."""
    return hashlib.sha256(msgspec.json.encode(parts, order="deterministic")).hexdigest()[:20]


def tree_hashes(root: Path, include: Callable[[Path], bool] = lambda _: True) -> list[tuple[str, str]]:
    """Return the relative path and content hash of every file below a directory, sorted."""
    return [(str(path.relative_to(root)), file_hash(path)) for path in list_files(root) if include(path)]


def list_files(root: Path) -> Iterable[Path]:
    """Yield every file below a directory in sorted order, except caches of Python tools."""
    for path in sorted(root.rglob("*")):
        if path.is_file() and not _IGNORED_DIRECTORIES.intersection(path.relative_to(root).parts):
            yield path


def file_hash(path: Path) -> str:
    """Return the SHA-256 of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


_DISK_ERRNOS = home.NO_SPACE_ERRNOS | {errno.EROFS, errno.EACCES, errno.EPERM}

# Finished versions of a stage to keep: the newest, and the previous one for a fast rollback.
_KEPT_VERSIONS = 2


class BuildCache:
    """Finished stages of image builds, below the cache directory.

    A stage is built in a temporary directory and renamed, so it exists completely under its key or not at
    all.
    """

    def __init__(self, root: Path | None = None) -> None:
        self.root = root or home.cache_dir() / "images"

    def find(self, stage: str, key: str) -> Path | None:
        """Return the directory of a finished stage; None if it does not exist."""
        folder = self.root / stage / key
        return folder if folder.is_dir() else None

    @property
    def refreshed_at(self) -> str:
        """When packages were last refreshed; part of the key of everything from a package mirror."""
        try:
            return (self.root / "refreshed").read_text()
        except OSError:
            return ""

    @contextmanager
    def refresh(self) -> Iterator[None]:
        """Mark packages as refreshed; if the block fails, restore the previous mark."""
        previous = self.refreshed_at
        home.write_atomic(self.root / "refreshed", time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()))
        try:
            yield
        except BaseException:
            # Finished stages have keys with the old mark: with the new one, the next build would start over.
            home.write_atomic(self.root / "refreshed", previous)
            raise

    def log_path(self, stage: str) -> Path:
        """Return the log file of a stage."""
        return home.ensure_private_dir(self.root / "logs") / f"{stage}.log"

    @contextmanager
    def build_stage(self, stage: str, key: str) -> Iterator[Path]:
        """Yield a directory to build a stage in; it becomes the finished stage if the block succeeds."""
        stage_dir = _ensure_directory(self.root / stage)
        # Next to the finished stages, because a rename is atomic within one file system only.
        unfinished = stage_dir / f".building-{key}-{os.getpid()}"
        shutil.rmtree(unfinished, ignore_errors=True)
        unfinished.mkdir()
        try:
            yield unfinished
            finished = stage_dir / key
            # The rename is the commit: a killed build leaves no half-built stage under its key. After a power
            # failure, files that are not on disk yet would be truncated.
            if not finished.is_dir():
                for path in (*unfinished.rglob("*"), unfinished):
                    home.fsync_path(path)
                unfinished.rename(finished)
                home.fsync_path(stage_dir)
        except OSError as error:
            if error.errno not in _DISK_ERRNOS:
                raise
            raise _translate_error(error, self.root) from error
        finally:
            shutil.rmtree(unfinished, ignore_errors=True)
        self._delete_old_stages(stage_dir)

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Prevent parallel builds in one cache; remove leftovers of killed builds.

        Raises:
            LockedError: another build is in progress.
        """
        _ensure_directory(self.root)
        lock = FileLock(self.root / "lock")
        lock.acquire(LockHolder.current_process("image build"))
        try:
            # This process holds the lock, so all of these belong to killed builds.
            for leftover in self.root.glob("*/.building-*"):
                shutil.rmtree(leftover, ignore_errors=True)
            yield
        finally:
            lock.release()

    def _delete_old_stages(self, stage_dir: Path) -> None:
        finished = [folder for folder in stage_dir.iterdir() if not folder.name.startswith(".")]
        finished.sort(key=lambda folder: folder.stat().st_mtime, reverse=True)
        for folder in finished[_KEPT_VERSIONS:]:
            shutil.rmtree(folder, ignore_errors=True)


def _ensure_directory(folder: Path) -> Path:
    try:
        return home.ensure_private_dir(folder)
    except OSError as error:
        raise _translate_error(error, folder) from error


def _translate_error(error: OSError, root: Path) -> PermanentError:
    if error.errno in home.NO_SPACE_ERRNOS:
        return DiskFullError(f"image cache {root}: no space left")
    return PermanentError(
        f"image cache {root}: {error.strerror}",
        hint="Set HOLDFAST_CACHE to another directory.",
    )
