"""The recipe of an image: cache keys of its stages, computed from the sources and this machine.

An image is a Debian root filesystem, one layer with holdfast's own files, and a configuration.
"""

from __future__ import annotations

import platform
from functools import cached_property
from typing import TYPE_CHECKING

from holdfast import __version__
from holdfast.errors import PermanentError, ToolNotFoundError
from holdfast.images import python_layer
from holdfast.images.build_cache import BuildCache, cache_key, tree_hashes
from holdfast.images.debian_rootfs import rootfs_key
from holdfast.images.go_build import binaries_key
from holdfast.images.image_toml import load_image_source

if TYPE_CHECKING:
    from pathlib import Path


_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64", "arm64": "arm64"}
# Increase it when layers or archives are assembled differently.
_ASSEMBLY_VERSION = 1


def host_architecture() -> str:
    """Return the architecture of this machine as Debian, Go and OCI name it."""
    machine = platform.machine()
    if machine not in _ARCHITECTURES:
        raise PermanentError(
            f"images cannot be built on a {machine} machine", hint="Use an amd64 or arm64 machine."
        )
    return _ARCHITECTURES[machine]


def image_reference(name: str, kubernetes: str = "") -> str:
    """Return the reference of an image of this version of holdfast.

    Raises:
        UsageError: the image or the Kubernetes version is unknown.
    """
    _, source = load_image_source(name, kubernetes)
    return f"{source.name}:{__version__}" + (f"-k{kubernetes}" if kubernetes else "")


class Recipe:
    """One image and the cache keys of its stages, computed on first use.

    Args:
        name: the image.
        kubernetes: a Kubernetes variant (for example 1.33), which has its own name and tag.
        cache: the cache of the stages; default: the one of this user.
    """

    def __init__(self, name: str, kubernetes: str = "", cache: BuildCache | None = None) -> None:
        self.cache = cache or BuildCache()
        self.image = name
        self.variant_name = f"{name}-{kubernetes}" if kubernetes else name
        self.folder, self.source = load_image_source(name, kubernetes)
        self.reference = image_reference(name, kubernetes)
        self.architecture = host_architecture()

    @cached_property
    def rootfs_key(self) -> str:
        """Key of the root filesystem; it changes with every refresh of the packages."""
        key, refreshed = rootfs_key(self.source.debian, self.architecture), self.cache.refreshed_at
        return cache_key(key, refreshed) if refreshed else key

    @cached_property
    def binaries_key(self) -> str:
        """Key of the Go programs; empty if the image has none."""
        return binaries_key(self.folder, self.source.go, self.architecture) if self.source.go else ""

    @cached_property
    def dependencies_key(self) -> str:
        """Key of the Python packages; empty if the image has none."""
        python = self.source.python
        if python is None or python.only_subpackage:
            return ""
        return python_layer.dependencies_key(python, self.architecture)

    @cached_property
    def uv_key(self) -> str:
        """Key of uv; empty if the image does not have it."""
        python = self.source.python
        return python_layer.uv_key(python, self.architecture) if python and python.uv_programs else ""

    @cached_property
    def layer_key(self) -> str:
        """Key of everything above the root filesystem, from which embedded images read too."""
        package = python_layer.package_key(self.source.python) if self.source.python else ""
        paths = [self.folder / path for path in sorted(self.source.files)]
        files = [tree_hashes(path) if path.is_dir() else path.read_text() for path in paths]
        return cache_key(
            "layer", _ASSEMBLY_VERSION, self.source, files, self.binaries_key, self.dependencies_key, package,
            self.rootfs_key if self.source.embedded_images else "",
        )  # fmt: skip

    @cached_property
    def key(self) -> str:
        """Key of the whole image, stored in a label."""
        keys = [self.rootfs_key, self.layer_key, self.reference, *([self.uv_key] if self.uv_key else [])]
        return cache_key("image", *keys)


def node_binary_path() -> Path:
    """Return the path of the node's multi-call program (etcd, kube-apiserver, kubectl and others)."""
    recipe = Recipe("node")
    folder = recipe.cache.find("build-binaries-node", recipe.binaries_key)
    if folder is None:
        raise ToolNotFoundError("programs of the node: not built", hint="Run `holdfast image build`.")
    return folder / "holdfast-node"
