"""Which kinds of objects matter to sandboxes, and which of them are asked for.

Pods, Services and claims are asked for by their tracking label: a cluster has many that are no business of
ours. Not here: the asking (`feed`, `lists`).
"""

from __future__ import annotations

from typing import NamedTuple

from holdfast.sandbox.api import API_VERSION, EXTENSIONS_API_VERSION, GROUP, NAME_HASH
from holdfast.sandbox.network import OURS

_OWN_POLICIES = ",".join(f"{key}={value}" for key, value in OURS.items())


class Kind(NamedTuple):
    """One kind of objects that is watched."""

    api_version: str
    kind: str
    plural: str
    labels: str | None = None

    @property
    def group(self) -> str:
        return self.api_version.rpartition("/")[0]

    @property
    def version(self) -> str:
        return self.api_version.rpartition("/")[2]


WATCHED = (
    Kind(EXTENSIONS_API_VERSION, "SandboxTemplate", "sandboxtemplates"),
    Kind(EXTENSIONS_API_VERSION, "SandboxWarmPool", "sandboxwarmpools"),
    Kind(EXTENSIONS_API_VERSION, "SandboxClaim", "sandboxclaims"),
    Kind(API_VERSION, "Sandbox", "sandboxes"),
    Kind("networking.k8s.io/v1", "NetworkPolicy", "networkpolicies", _OWN_POLICIES),
    Kind("v1", "Pod", "pods", NAME_HASH),
    Kind("v1", "PersistentVolumeClaim", "persistentvolumeclaims", NAME_HASH),
    Kind("v1", "Service", "services", NAME_HASH),
)
"""Owners before what they own, so that a list of all finds each object's owner known."""

CRDS = tuple(f"{each.plural}.{each.group}" for each in WATCHED if each.group.endswith(GROUP))
