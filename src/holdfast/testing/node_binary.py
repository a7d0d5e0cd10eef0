"""Finds the node image's multi-call binary: etcd, kube-apiserver and their like in one file.

Not here: building it (`holdfast.images`); nothing is fetched or built behind a test's back.
"""

from __future__ import annotations

import os
from pathlib import Path

from holdfast.errors import UsageError

VARIABLE = "HOLDFAST_NODE_BINARY"


def node_binary() -> Path:
    """The binary named by the environment, else the one that `holdfast image build` left in its cache."""
    named = os.environ.get(VARIABLE)
    if not named:
        from holdfast.images import artifacts

        return artifacts.node_binary()
    path = Path(named)
    if path.is_file() and os.access(path, os.X_OK):
        return path.resolve()
    raise UsageError(
        f"{VARIABLE} names {path}, which is no executable file.",
        hint=f"Run `holdfast image build` and unset {VARIABLE}, or let it name the built binary.",
    )
