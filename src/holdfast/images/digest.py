"""Content hashes: the same inputs give the same key, on every machine and from clone and wheel alike."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any

import msgspec

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

_IGNORED = {"__pycache__", ".mypy_cache", ".ruff_cache", ".pytest_cache"}


def key_of(*parts: Any) -> str:
    """A short key for values and for what files contain (paths are given as `tree(...)`)."""
    return hashlib.sha256(msgspec.json.encode(parts, order="deterministic")).hexdigest()[:20]


def tree(root: Path, wanted: Callable[[Path], bool] = lambda _: True) -> list[tuple[str, str]]:
    """Relative path and content hash of every file below a folder, sorted."""
    return [(str(path.relative_to(root)), file_hash(path)) for path in files_below(root) if wanted(path)]


def files_below(root: Path) -> Iterable[Path]:
    """Every file below a folder in a fixed order, without what interpreters and linters leave there."""
    for path in sorted(root.rglob("*")):
        if path.is_file() and not _IGNORED.intersection(path.relative_to(root).parts):
            yield path


def file_hash(path: Path) -> str:
    """The sha256 of a file's content."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
