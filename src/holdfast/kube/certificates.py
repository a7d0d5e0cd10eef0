"""Private keys as files in memory, which end with their process however it ends.

TLS takes a key from a file alone, and the official loader writes one that stands inside a kubeconfig to the
disk for as long as the process lives: one that is killed leaves it there for ever. Where the system has no
files in memory (it is no Linux) they are on the disk, as they were. Not here: what is made of them (`client`,
`reach`).
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

_CLIENT = ("client-certificate", "client-key")
_AUTHORITY = ("certificate-authority",)


@contextmanager
def passing_file(content: bytes) -> Iterator[str]:
    """The name of a file with this content, for as long as it takes to read it."""
    if not _there_are_files_in_memory():
        with tempfile.NamedTemporaryFile() as file:
            file.write(content)
            file.flush()
            yield file.name
        return
    made = _file_in_memory(content)
    try:
        yield _name(made)
    finally:
        os.close(made)


class Certificates:
    """The files of one client. Those of before a renewal stay too: a connection may just be reading them."""

    def __init__(self) -> None:
        self._files: dict[bytes, int] = {}

    def loadable(self, kubeconfig: Path, context: str | None) -> dict[str, Any] | None:
        """What the kubeconfig says for this context, with names of files in place of data.

        None: the official loader has to take the file as it is, or to say what is wrong with it.
        """
        import yaml

        if not _there_are_files_in_memory():
            return None
        try:
            content = yaml.safe_load(kubeconfig.read_text(encoding="utf-8"))
            return self._with_files(content, context or content["current-context"])
        except (yaml.YAMLError, ValueError, LookupError, TypeError, AttributeError, StopIteration):
            return None

    def _with_files(self, content: dict[str, Any], active: str) -> dict[str, Any] | None:
        context = _first(content["contexts"], active)
        user = _first(content["users"], context["context"]["user"])
        cluster = _first(content["clusters"], context["context"]["cluster"])
        if "auth-provider" in user["user"]:  # new tokens are written back to where the old one was
            return None
        self._put_files(user["user"], _CLIENT)
        if "exec" not in user["user"]:  # a program that is told of the cluster could not open our files
            self._put_files(cluster["cluster"], _AUTHORITY)
        kept = {"contexts": [context], "users": [user], "clusters": [cluster], "current-context": active}
        return {**content, **kept}

    def _put_files(self, fields: dict[str, Any], names: tuple[str, ...]) -> None:
        for name in names:
            if fields.get(f"{name}-data"):
                fields[name] = self._file(base64.standard_b64decode(fields.pop(f"{name}-data")))

    def _file(self, content: bytes) -> str:
        if content not in self._files:
            self._files[content] = _file_in_memory(content)
        return _name(self._files[content])

    def close(self) -> None:
        """Forget all of them."""
        while self._files:
            os.close(self._files.popitem()[1])


def _first(entries: list[dict[str, Any]], name: str) -> dict[str, Any]:
    """Of several with the same name, the one that the official loader takes."""
    return next(entry for entry in entries if entry["name"] == name)


def _there_are_files_in_memory() -> bool:
    return hasattr(os, "memfd_create")


def _file_in_memory(content: bytes) -> int:
    made = os.memfd_create("certificate")
    with open(made, "wb", closefd=False) as file:
        file.write(content)
    return made


def _name(descriptor: int) -> str:
    return f"/proc/self/fd/{descriptor}"
