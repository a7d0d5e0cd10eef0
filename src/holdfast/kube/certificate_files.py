"""Private keys as in-memory files (memfd), which disappear with the process.

`ssl` loads keys from files only, and the official kubeconfig loader writes inline keys to temporary files on
disk, where a killed process leaves them. On systems without memfd the keys are temporary files on disk.
"""

from __future__ import annotations

import base64
import os
import tempfile
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_CLIENT_FIELDS = ("client-certificate", "client-key")
_CA_FIELDS = ("certificate-authority",)


@contextmanager
def temporary_secret_file(content: bytes) -> Iterator[str]:
    """The path of a file with this content, which is deleted after the block."""
    if not _has_memfd():
        # Mode 0600, but a killed process leaves it on disk.
        with tempfile.NamedTemporaryFile() as file:
            file.write(content)
            file.flush()
            yield file.name
        return
    descriptor = _create_memfd(content)
    try:
        yield _fd_path(descriptor)
    finally:
        os.close(descriptor)


class CertificateFiles:
    """The files of one client; files from before a renewal are kept, a new connection may be reading them."""

    def __init__(self) -> None:
        # By content: reloading an unchanged kubeconfig opens no further descriptors.
        self._files: dict[bytes, int] = {}

    def kubeconfig_with_files(self, kubeconfig: Path, context: str | None) -> dict[str, Any] | None:
        """The kubeconfig, reduced to one context, with file names instead of inline certificates and keys.

        None if the official loader must read the file itself: it has an auth-provider, or is invalid.
        """
        import yaml

        if not _has_memfd():
            return None
        try:
            content = yaml.safe_load(kubeconfig.read_text(encoding="utf-8"))
            return self._replace_inline_data(content, context or content["current-context"])
        except (yaml.YAMLError, ValueError, LookupError, TypeError, AttributeError, StopIteration):
            return None

    def _replace_inline_data(self, content: dict[str, Any], active: str) -> dict[str, Any] | None:
        context = _first_entry(content["contexts"], active)
        user = _first_entry(content["users"], context["context"]["user"])
        cluster = _first_entry(content["clusters"], context["context"]["cluster"])
        if "auth-provider" in user["user"]:  # the loader writes new tokens to the kubeconfig
            return None
        self._write_inline_data(user["user"], _CLIENT_FIELDS)
        if "exec" not in user["user"]:  # an exec plugin that receives the cluster cannot open our files
            self._write_inline_data(cluster["cluster"], _CA_FIELDS)
        reduced = {"contexts": [context], "users": [user], "clusters": [cluster], "current-context": active}
        return {**content, **reduced}

    def _write_inline_data(self, fields: dict[str, Any], names: tuple[str, ...]) -> None:
        for name in names:
            if fields.get(f"{name}-data"):
                fields[name] = self._file_path(base64.standard_b64decode(fields.pop(f"{name}-data")))

    def _file_path(self, content: bytes) -> str:
        if content not in self._files:
            self._files[content] = _create_memfd(content)
        return _fd_path(self._files[content])

    def close(self) -> None:
        while self._files:
            os.close(self._files.popitem()[1])


def _first_entry(entries: list[dict[str, Any]], name: str) -> dict[str, Any]:
    """The first entry of this name, as in the official loader."""
    return next(entry for entry in entries if entry["name"] == name)


def _has_memfd() -> bool:
    return hasattr(os, "memfd_create")


def _create_memfd(content: bytes) -> int:
    # Close-on-exec is the default: exec plugins and other child programs do not inherit the key.
    descriptor = os.memfd_create("certificate")
    with open(descriptor, "wb", closefd=False) as file:
        file.write(content)
    return descriptor


def _fd_path(descriptor: int) -> str:
    # Opening this path starts at offset 0; the descriptor itself is at the end of the content.
    return f"/proc/self/fd/{descriptor}"
