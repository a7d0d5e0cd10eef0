"""Paths in a sandbox."""

from __future__ import annotations

import os
from pathlib import PurePosixPath

from holdfast.errors import ArgumentTypeError, UsageError

# Relative paths in a sandbox start here.
WORKSPACE_DIR = PurePosixPath("/sandbox")


def remote_path(path: str | os.PathLike[str]) -> PurePosixPath:
    """Absolute path in a sandbox.

    Raises:
        UsageError: the path contains `..` or a null byte, or is not text.
    """
    if not isinstance(path, str | os.PathLike):
        raise ArgumentTypeError("path", f"must be text, not {path!r}")
    text = os.fspath(path)
    absolute = WORKSPACE_DIR / text
    if ".." in absolute.parts or "\0" in text:
        raise UsageError(f"{text!r}: `..` is not allowed in a sandbox path", hint="Use the resolved path.")
    return absolute
