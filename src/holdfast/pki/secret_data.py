"""A bundle as the data of three Kubernetes Secrets, and back.

| Secret | what it holds | who reads it |
| --- | --- | --- |
| `holdfast-server-tls` | `tls.crt`, `tls.key` | the gateway's server |
| `holdfast-server-client-ca` | `ca.crt` | the gateway's server, to know its clients |
| `holdfast-client-tls` | `tls.crt`, `tls.key`, `ca.crt` | `up`, on any machine, to write a client's files |

Values are base64 text, as the API has them. Not here: calls to the cluster.
"""

from __future__ import annotations

import base64
import binascii
from typing import TYPE_CHECKING

from holdfast.pki.material import Bundle, Pair, Stored
from holdfast.pki.reasons import Reason

if TYPE_CHECKING:
    from collections.abc import Mapping

SERVER_SECRET = "holdfast-server-tls"  # noqa: S105 (a name)
CLIENT_CA_SECRET = "holdfast-server-client-ca"  # noqa: S105 (a name)
CLIENT_SECRET = "holdfast-client-tls"  # noqa: S105 (a name)

SECRET_TYPES: Mapping[str, str] = {
    SERVER_SECRET: "kubernetes.io/tls",
    CLIENT_CA_SECRET: "Opaque",
    CLIENT_SECRET: "kubernetes.io/tls",
}
"""The API lets nobody change the type of a Secret: one of another type has to be deleted first."""

_CERTIFICATE, _KEY, _CA = "tls.crt", "tls.key", "ca.crt"
_KEYS: Mapping[str, tuple[str, ...]] = {
    SERVER_SECRET: (_CERTIFICATE, _KEY),
    CLIENT_CA_SECRET: (_CA,),
    CLIENT_SECRET: (_CERTIFICATE, _KEY, _CA),
}


def to_secret_data(bundle: Bundle) -> dict[str, dict[str, str]]:
    """The `data` of each Secret, by the Secret's name."""
    return {
        SERVER_SECRET: _encoded({_CERTIFICATE: bundle.server.certificate, _KEY: bundle.server.key}),
        CLIENT_CA_SECRET: _encoded({_CA: bundle.ca}),
        CLIENT_SECRET: _encoded(
            {_CERTIFICATE: bundle.client.certificate, _KEY: bundle.client.key, _CA: bundle.ca}
        ),
    }


def from_secret_data(secrets: Mapping[str, Mapping[str, str] | None]) -> Stored[Bundle]:
    """The bundle in the `data` of the three Secrets; a Secret that is not there is None or left out."""
    there = {name: data for name in _KEYS if (data := secrets.get(name)) is not None}
    if not there:
        return Stored(None, (Reason("absent", "there are no certificates yet"),))
    reasons = [Reason("incomplete", f"the secret {name} is missing") for name in _KEYS if name not in there]
    parts: dict[str, dict[str, bytes]] = {}
    for name, data in there.items():
        parts[name] = {}
        for key in _KEYS[name]:
            part = _decoded(data.get(key), f"{key} of the secret {name}")
            if isinstance(part, Reason):
                reasons.append(part)
            else:
                parts[name][key] = part
    if reasons:
        return Stored(None, tuple(reasons))
    return Stored(_bundle(parts), tuple(_disagreement(parts)))


def _bundle(parts: Mapping[str, Mapping[str, bytes]]) -> Bundle:
    server, client = parts[SERVER_SECRET], parts[CLIENT_SECRET]
    return Bundle(
        ca=parts[CLIENT_CA_SECRET][_CA],
        server=Pair(server[_CERTIFICATE], server[_KEY]),
        client=Pair(client[_CERTIFICATE], client[_KEY]),
    )


def _disagreement(parts: Mapping[str, Mapping[str, bytes]]) -> list[Reason]:
    if parts[CLIENT_CA_SECRET][_CA].split() == parts[CLIENT_SECRET][_CA].split():
        return []
    text = f"the secrets {CLIENT_CA_SECRET} and {CLIENT_SECRET} hold different CAs"
    return [Reason("foreign-ca", text)]


def _encoded(parts: Mapping[str, bytes]) -> dict[str, str]:
    return {key: base64.b64encode(value).decode("ascii") for key, value in parts.items()}


def _decoded(value: object, what: str) -> bytes | Reason:
    if value is None or value == "":
        return Reason("incomplete", f"{what} is missing")
    if not isinstance(value, str):
        return Reason("unreadable", f"{what} is not base64")
    try:
        decoded = base64.b64decode(value, validate=True)
    except (binascii.Error, ValueError):
        return Reason("unreadable", f"{what} is not base64")
    return decoded if decoded.strip() else Reason("incomplete", f"{what} is empty")
