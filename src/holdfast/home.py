"""Where holdfast keeps its files, and how it writes them: private, atomic, in one place.

`HOLDFAST_HOME` moves configuration and state; `HOLDFAST_CACHE` moves what can be built again.
Not here: what is in the files; each floor reads and writes its own.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
from pathlib import Path


def config_dir() -> Path:
    """Metadata, kubeconfigs and client certificates."""
    return _home_subdirectory("config", "user_config_path")


def state_dir() -> Path:
    """Checkpoints and run histories."""
    return _home_subdirectory("state", "user_state_path")


def cache_dir() -> Path:
    """What can be built again: image layers, downloads."""
    moved = os.environ.get("HOLDFAST_CACHE")
    if moved:
        return Path(moved).expanduser().absolute()
    import platformdirs

    return platformdirs.user_cache_path("holdfast")


def ensure_private_dir(path: Path) -> Path:
    """Make a directory that only its owner may enter, and any that is missing on the way to it."""
    for folder in (*reversed(path.parents), path):
        if not folder.exists():
            folder.mkdir(mode=0o700, exist_ok=True)
    return path


def write_atomic(path: Path, content: str | bytes, *, mode: int = 0o600) -> None:
    """Replace a file as a whole: after a crash there is the old one or the new one, never a half."""
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
    """Flush the names in a directory to disk: renamed and new files survive a power failure."""
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
