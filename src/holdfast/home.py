"""The directories of holdfast's files, and how files are written: private and atomically.

`HOLDFAST_HOME` moves configuration and state; `HOLDFAST_CACHE` moves files that can be built again.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
from pathlib import Path


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
        if not folder.exists():
            folder.mkdir(mode=0o700, exist_ok=True)
    return path


def write_atomic(path: Path, content: str | bytes, *, mode: int = 0o600) -> None:
    """Replace a file: after a crash its content is the old one or the new one, complete."""
    ensure_private_dir(path.parent)
    data = content.encode() if isinstance(content, str) else content
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            os.fchmod(file.fileno(), mode)
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        Path(temporary).replace(path)
    except BaseException:
        with contextlib.suppress(OSError):
            Path(temporary).unlink()
        raise
    fsync_directory(path.parent)


def fsync_directory(path: Path) -> None:
    """Flush the entries of a directory to disk: renamed and new files survive a power failure."""
    handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
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
