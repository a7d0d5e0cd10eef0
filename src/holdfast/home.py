"""The directories of holdfast's files, and how files are written: private and atomically.

`HOLDFAST_HOME` moves configuration and state; `HOLDFAST_CACHE` moves files that can be built again.
"""

from __future__ import annotations

import contextlib
import errno
import os
import tempfile
from pathlib import Path
from typing import IO, TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

# Errors of a full disk, an exceeded quota or a file size limit.
NO_SPACE_ERRNOS = frozenset({errno.EFBIG, errno.ENOSPC, errno.EDQUOT})


def config_dir() -> Path:
    """The directory of metadata, kubeconfigs and client certificates."""
    return _home_subdirectory("config", "user_config_path")


def state_dir() -> Path:
    """The directory of checkpoints and run histories."""
    return _home_subdirectory("state", "user_state_path")


def cache_dir() -> Path:
    """The directory of files that can be built again: image layers, downloads."""
    moved = os.environ.get("HOLDFAST_CACHE")
    if moved:
        return Path(moved).expanduser().absolute()
    import platformdirs

    return platformdirs.user_cache_path("holdfast")


def ensure_private_dir(path: Path) -> Path:
    """Create a directory and its missing parents with mode 0700; return the path."""
    for folder in (*reversed(path.parents), path):
        # Not `mkdir(parents=True, mode=...)`, which gives the mode to the last directory only: other users
        # could read the parents.
        if not folder.exists():
            folder.mkdir(mode=0o700, exist_ok=True)
    return path


def write_atomic(path: Path, content: str | bytes, *, mode: int = 0o600) -> None:
    """Replace a file: after a crash its content is the old one or the new one, complete."""
    ensure_private_dir(path.parent)
    data = content.encode() if isinstance(content, str) else content
    # A kill before the rename leaves this hidden file and the old content of `path`.
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    with rename_when_complete(os.fdopen(handle, "wb"), Path(temporary), path) as file:
        # Before the content is written: it is never readable with a wider mode. mkstemp sets 0600.
        os.fchmod(file.fileno(), mode)
        file.write(data)


@contextlib.contextmanager
def rename_when_complete(file: IO[bytes], temporary: Path, target: Path) -> Iterator[IO[bytes]]:
    """Rename a new file to its target when the block succeeds, and delete it when the block fails.

    Args:
        file: the open file; it is closed at the end.
        temporary: its path, in the directory of the target: a rename is atomic within one file system only.
        target: the path to create or replace.
    """
    try:
        with file:
            yield file
            file.flush()
            # Before the rename: otherwise a power failure can leave the new name with an empty file.
            os.fsync(file.fileno())
            temporary.replace(target)
    except BaseException:
        # Also after Ctrl-C: the temporary file may contain a private key.
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise
    fsync_path(target.parent)


def fsync_path(path: Path) -> None:
    """Flush a file, or the entries of a directory, to disk: renamed and new files survive a power failure."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _home_subdirectory(name: str, platformdirs_function: str) -> Path:
    moved = os.environ.get("HOLDFAST_HOME")
    if moved:
        return Path(moved).expanduser().absolute() / name
    import platformdirs

    path: Path = getattr(platformdirs, platformdirs_function)("holdfast")
    return path
