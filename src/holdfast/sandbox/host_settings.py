"""Proxy and CA certificates of the gateway's host in sandboxes.

A Secret contains the proxy settings, because a proxy URL may contain a login; a ConfigMap contains the CA
bundle. Both are optional in the pod: after they are removed, existing sandboxes start without them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

if TYPE_CHECKING:
    from collections.abc import Iterable

PROXY_SECRET = "holdfast-sandbox-proxy"  # noqa: S105 (a name)
CA_CONFIG_MAP = "holdfast-sandbox-ca"
CA_BUNDLE_KEY = "ca-bundle.crt"
PROXY_VARIABLES = ("http_proxy", "https_proxy", "no_proxy")
"""Keys of the Secret. Programs read these variables in lower case, in upper case, or both."""
_CA_PATH = "/etc/holdfast/ca"
_CA_VOLUME = "host-ca"
# OpenSSL, Python's ssl and uv; Python's requests and pip; curl; git; Node.js, which adds them to its own.
_CA_VARIABLES = (
    "SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "GIT_SSL_CAINFO", "NODE_EXTRA_CA_CERTS",
)  # fmt: skip


class HostSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The objects in the namespace of the sandboxes that contain the settings; None if there are none."""

    proxy_secret: str | None = None
    ca_config_map: str | None = None

    def variables(self, overridden: Iterable[str]) -> list[dict[str, Any]]:
        """Return the environment variables of a sandbox.

        Args:
            overridden: variables that the user sets. A proxy variable replaces both of its spellings.
        """
        names = set(overridden)
        lowered = {name.lower() for name in names}
        variables: list[dict[str, Any]] = []
        if self.proxy_secret is not None:
            variables += [
                _from_secret(spelling, self.proxy_secret, name)
                for name in PROXY_VARIABLES
                if name not in lowered
                for spelling in (name, name.upper())
            ]
        if self.ca_config_map is not None:
            path = f"{_CA_PATH}/{CA_BUNDLE_KEY}"
            variables += [{"name": name, "value": path} for name in _CA_VARIABLES if name not in names]
        return variables

    def mounts(self) -> list[dict[str, Any]]:
        """Return the volume mounts of the sandbox's container."""
        if self.ca_config_map is None:
            return []
        return [{"name": _CA_VOLUME, "mountPath": _CA_PATH, "readOnly": True}]

    def volumes(self) -> list[dict[str, Any]]:
        """Return the volumes of the pod."""
        if self.ca_config_map is None:
            return []
        return [{"name": _CA_VOLUME, "configMap": {"name": self.ca_config_map, "optional": True}}]


def _from_secret(variable: str, secret: str, key: str) -> dict[str, Any]:
    return {
        "name": variable,
        "valueFrom": {"secretKeyRef": {"name": secret, "key": key, "optional": True}},
    }
