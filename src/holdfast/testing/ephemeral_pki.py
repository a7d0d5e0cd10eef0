"""A short-lived CA, its certificates, and kubeconfigs for one test run."""

from __future__ import annotations

import base64
import datetime as dt
import json
from typing import TYPE_CHECKING, Any

from holdfast.home import write_atomic
from holdfast.pki import CertificateAuthority, KeyPair

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

_VALIDITY = dt.timedelta(days=7)
_LOOPBACK_NAMES = ("localhost", "127.0.0.1")


class EphemeralCA(CertificateAuthority):
    """A certificate authority for loopback servers and their clients."""

    __slots__ = ()

    def __init__(self) -> None:
        super().__init__(at=dt.datetime.now(dt.UTC), lifetime=_VALIDITY)

    def issue(self, common_name: str, *, groups: tuple[str, ...] = (), server: bool = False) -> KeyPair:
        """Issue a key pair for a Kubernetes user, or for a loopback server that is also a client."""
        return self.issue_user(common_name, groups, _LOOPBACK_NAMES if server else ())


def write_key_pair(pair: KeyPair, directory: Path, name: str) -> tuple[Path, Path]:
    """Write certificate and key to a directory with mode 0600; return both paths."""
    certificate, key = directory / f"{name}.crt", directory / f"{name}.key"
    write_atomic(certificate, pair.certificate)
    write_atomic(key, pair.key)
    return certificate, key


def write_kubeconfig(
    path: Path,
    *,
    url: str,
    ca: bytes | None,
    client: KeyPair | None,
    user: Mapping[str, Any] | None = None,
) -> None:
    """Write a kubeconfig with one context.

    Args:
        path: the file.
        url: URL of the server.
        ca: certificate of its CA.
        client: client certificate.
        user: further keys of the user entry, such as a token.
    """
    cluster: dict[str, Any] = {"server": url}
    if ca is not None:
        cluster["certificate-authority-data"] = _encode_base64(ca)
    entry = dict(user or {})
    if client is not None:
        entry["client-certificate-data"] = _encode_base64(client.certificate)
        entry["client-key-data"] = _encode_base64(client.key)
    content = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "test", "cluster": cluster}],
        "users": [{"name": "test", "user": entry}],
        "contexts": [{"name": "test", "context": {"cluster": "test", "user": "test"}}],
        "current-context": "test",
    }
    write_atomic(path, json.dumps(content, indent=1))


def _encode_base64(content: bytes) -> str:
    return base64.b64encode(content).decode("ascii")
