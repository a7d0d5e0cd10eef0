"""Finished parts of an image build that are useful outside an image."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.errors import ToolMissingError
from holdfast.images.cache import Cache
from holdfast.images.recipe import Recipe

if TYPE_CHECKING:
    from pathlib import Path


def node_binary() -> Path:
    """The node's multi-call program (etcd, kube-apiserver, kubectl, …) for use on this machine."""
    folder = Cache().find("build-binaries-node", Recipe("node").binaries_key)
    if folder is None:
        raise ToolMissingError("the node's programs are not built yet", hint="Run: holdfast image build")
    return folder / "holdfast-node"
