"""Writes kubeconfig files for loopback servers: client certificate inside, readable by their owner alone.

Written as JSON, which is YAML too. Not here: the gateway's kubeconfigs, which people keep.
"""

from __future__ import annotations

import base64
import json
from typing import TYPE_CHECKING, Any

from holdfast.testing.throwaway_pki import Pair, write_private

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path


def write_kubeconfig(
    path: Path,
    *,
    url: str,
    authority: bytes | None,
    client: Pair | None,
    user: Mapping[str, Any] | None = None,
) -> None:
    """Write a kubeconfig with one context; `user` holds further keys of its user entry, such as a token."""
    cluster: dict[str, Any] = {"server": url}
    if authority is not None:
        cluster["certificate-authority-data"] = _encoded(authority)
    entry = dict(user or {})
    if client is not None:
        entry["client-certificate-data"] = _encoded(client.certificate)
        entry["client-key-data"] = _encoded(client.key)
    content = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "test", "cluster": cluster}],
        "users": [{"name": "test", "user": entry}],
        "contexts": [{"name": "test", "context": {"cluster": "test", "user": "test"}}],
        "current-context": "test",
    }
    write_private(path, json.dumps(content, indent=1).encode())


def _encoded(content: bytes) -> str:
    return base64.b64encode(content).decode("ascii")
