"""Keys and certificates that stand inside a kubeconfig, as files in memory that end with their process.

TLS takes them from files alone, and the official loader writes them to the disk for as long as the process
lives: one that is killed leaves its private key there for ever. Where the system has no files in memory (it
is no Linux), and for users whose loader writes new tokens back into the kubeconfig, the official way is left
as it is. Not here: what is made of them (`client`).
"""

from __future__ import annotations

import base64
import os
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path

_INSIDE = {
    "users": ("user", ("client-certificate", "client-key")),
    "clusters": ("cluster", ("certificate-authority",)),
}


class Certificates:
    """The files of one client. Those of before a renewal stay too: a connection may just be reading them."""

    def __init__(self) -> None:
        self._files: dict[bytes, int] = {}

    def loadable(self, kubeconfig: Path) -> dict[str, Any] | None:
        """The kubeconfig with names of files in place of data; None if it has to be loaded as it is."""
        import yaml

        if not hasattr(os, "memfd_create"):
            return None
        content = yaml.safe_load(kubeconfig.read_text(encoding="utf-8"))
        if not isinstance(content, dict):
            return None
        for kind, (part, names) in _INSIDE.items():
            for entry in content.get(kind) or ():
                fields = entry.get(part) or {}
                if "auth-provider" in fields:
                    return None
                for name in names:
                    if fields.get(f"{name}-data"):
                        fields[name] = self._file(base64.standard_b64decode(fields.pop(f"{name}-data")))
        return content

    def _file(self, content: bytes) -> str:
        if content not in self._files:
            made = os.memfd_create("certificate")
            self._files[content] = made
            with open(made, "wb", closefd=False) as file:
                file.write(content)
        return f"/proc/self/fd/{self._files[content]}"

    def close(self) -> None:
        """Forget all of them."""
        while self._files:
            os.close(self._files.popitem()[1])
