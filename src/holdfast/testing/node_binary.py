"""Finds the node image's multi-call binary: etcd, kube-apiserver and their like in one file.

Not here: building it (`holdfast.images`); nothing is fetched or built behind a test's back.
"""

from __future__ import annotations

import importlib
import os
from pathlib import Path

from holdfast.errors import UsageError

VARIABLE = "HOLDFAST_NODE_BINARY"


def node_binary() -> Path:
    """The binary named by the environment, else the one that `holdfast image build` left in its cache."""
    named = os.environ.get(VARIABLE)
    if named:
        return _executable(Path(named), f"{VARIABLE} names")
    cached = _cached()
    if cached is not None:
        return _executable(cached, "the image cache names")
    raise UsageError(
        "The node binary (etcd and kube-apiserver) is not built yet.",
        hint=f"Run `holdfast image build`, or let {VARIABLE} name a built one.",
    )


def _cached() -> Path | None:
    try:
        artifacts = importlib.import_module("holdfast.images.artifacts")
    except ModuleNotFoundError:
        return None
    find = getattr(artifacts, "node_binary", None)
    found = find() if find is not None else None
    return None if found is None else Path(found)


def _executable(path: Path, who: str) -> Path:
    if path.is_file() and os.access(path, os.X_OK):
        return path.resolve()
    raise UsageError(
        f"{who} {path}, which is no executable file.",
        hint=f"Run `holdfast image build`, or let {VARIABLE} name the built binary.",
    )
