"""What has to be built for each image, and under which key: pure, from the sources and this machine.

An image is its Debian root filesystem, one layer of holdfast's own files above it, and a configuration.
Not here: building (steps.py).
"""

from __future__ import annotations

import platform
from functools import cached_property
from typing import TYPE_CHECKING

from holdfast import __version__
from holdfast.errors import PermanentError
from holdfast.images import python_layer
from holdfast.images.cache import Cache
from holdfast.images.debian import rootfs_key
from holdfast.images.digest import key_of, tree
from holdfast.images.golang import binaries_key
from holdfast.images.sources import load_source

if TYPE_CHECKING:
    from pathlib import Path

_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64", "arm64": "arm64"}
_ASSEMBLY = 1
"""Raised when layers or archives are put together in another way."""


def architecture() -> str:
    """This machine's architecture in the words of Debian, Go and OCI."""
    machine = platform.machine()
    if machine not in _ARCHITECTURES:
        raise PermanentError(f"images cannot be built on a {machine} machine", hint="amd64 and arm64 can.")
    return _ARCHITECTURES[machine]


class Recipe:
    """One image and the keys of its stages; keys are worked out on first use.

    `kubernetes` chooses a variant (1.33, say), which has a name and a tag of its own.
    """

    def __init__(self, name: str, kubernetes: str = "") -> None:
        self.image = name
        self.short = f"{name}-{kubernetes}" if kubernetes else name
        self.folder, self.source = load_source(name, kubernetes)
        self.reference = f"{self.source.name}:{__version__}" + (f"-k{kubernetes}" if kubernetes else "")
        self.architecture = architecture()

    @cached_property
    def rootfs_key(self) -> str:
        key, refreshed = rootfs_key(self.source.debian, self.architecture), Cache().refreshed
        return key_of(key, refreshed) if refreshed else key

    @cached_property
    def binaries_key(self) -> str:
        return binaries_key(self.folder, self.source.go, self.architecture) if self.source.go else ""

    @cached_property
    def dependencies_key(self) -> str:
        python = self.source.python
        return python_layer.dependencies_key(python, self.architecture) if python and not python.only else ""

    @cached_property
    def layer_key(self) -> str:
        """Everything above the root filesystem; baked images also read from it."""
        package = python_layer.package_key(self.source.python) if self.source.python else ""
        files = [tree(path) if path.is_dir() else path.read_text() for path in self._own_files()]
        return key_of(
            "layer", _ASSEMBLY, self.source, files, self.binaries_key, self.dependencies_key, package,
            self.rootfs_key if self.source.baked else "",
        )  # fmt: skip

    @cached_property
    def key(self) -> str:
        """The whole image: what its label says."""
        return key_of("image", self.rootfs_key, self.layer_key, self.reference)

    def _own_files(self) -> list[Path]:
        return [self.folder / path for path in sorted(self.source.files)]
