"""Where objects of a kind live in the API: known for common kinds, asked of the server for all others.

Not here: the objects.
"""

from __future__ import annotations

import weakref
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from holdfast.errors import ClusterRefusedError
from holdfast.kube.request import Request
from holdfast.kube.status import http_status
from holdfast.kube.verbs import Verb

if TYPE_CHECKING:
    from collections.abc import Callable

    from holdfast.kube.manifest import Target
    from holdfast.kube.steps import Steps

_NOT_FOUND = 404

# kind: (API version, plural, lives in a namespace)
_COMMON: dict[str, tuple[str, str, bool]] = {
    "ConfigMap": ("v1", "configmaps", True),
    "Endpoints": ("v1", "endpoints", True),
    "Event": ("v1", "events", True),
    "Namespace": ("v1", "namespaces", False),
    "Node": ("v1", "nodes", False),
    "PersistentVolume": ("v1", "persistentvolumes", False),
    "PersistentVolumeClaim": ("v1", "persistentvolumeclaims", True),
    "Pod": ("v1", "pods", True),
    "Secret": ("v1", "secrets", True),
    "Service": ("v1", "services", True),
    "ServiceAccount": ("v1", "serviceaccounts", True),
    "DaemonSet": ("apps/v1", "daemonsets", True),
    "Deployment": ("apps/v1", "deployments", True),
    "ReplicaSet": ("apps/v1", "replicasets", True),
    "StatefulSet": ("apps/v1", "statefulsets", True),
    "CronJob": ("batch/v1", "cronjobs", True),
    "Job": ("batch/v1", "jobs", True),
    "Lease": ("coordination.k8s.io/v1", "leases", True),
    "Ingress": ("networking.k8s.io/v1", "ingresses", True),
    "NetworkPolicy": ("networking.k8s.io/v1", "networkpolicies", True),
    "ClusterRole": ("rbac.authorization.k8s.io/v1", "clusterroles", False),
    "ClusterRoleBinding": ("rbac.authorization.k8s.io/v1", "clusterrolebindings", False),
    "Role": ("rbac.authorization.k8s.io/v1", "roles", True),
    "RoleBinding": ("rbac.authorization.k8s.io/v1", "rolebindings", True),
    "StorageClass": ("storage.k8s.io/v1", "storageclasses", False),
    "CustomResourceDefinition": ("apiextensions.k8s.io/v1", "customresourcedefinitions", False),
}
API_VERSIONS: dict[str, str] = {kind: row[0] for kind, row in _COMMON.items()}


@dataclass(frozen=True, slots=True)
class Home:
    """The collection that objects of one kind live in."""

    root: str
    plural: str
    namespaced: bool

    def path(self, namespace: str | None, name: str | None = None) -> str:
        place = f"/namespaces/{namespace or 'default'}" if self.namespaced else ""
        return f"{self.root}{place}/{self.plural}" + (f"/{name}" if name else "")


_asked: weakref.WeakKeyDictionary[Any, dict[tuple[str, str], Home]] = weakref.WeakKeyDictionary()


def root_of(api_version: str) -> str:
    return f"/api/{api_version}" if "/" not in api_version else f"/apis/{api_version}"


def home_of(api_client: Any, where: Target, send: Callable[[Request], Any]) -> Steps[Home]:
    """Where objects of this kind live; `send` makes a request under its policy."""
    row = _COMMON.get(where.kind)
    if row is not None and row[0] == where.api_version:
        return Home(root_of(row[0]), row[1], row[2])
    known = _asked.setdefault(api_client, {})
    key = (where.api_version, where.kind)
    if key not in known:
        root = root_of(where.api_version)
        try:
            answer = yield lambda: send(Request(Verb.READ, root, "api_resources"))
        except ClusterRefusedError as error:
            if error.cause is None or http_status(error.cause) != _NOT_FOUND:
                raise
            answer = {}
        known.update(_homes(where.api_version, root, answer))
    if key not in known:
        raise ClusterRefusedError(
            f"the server knows no kind {where.kind} in {where.api_version}",
            hint="Install its CustomResourceDefinition, or correct apiVersion and kind.",
        )
    return known[key]


def _homes(api_version: str, root: str, answer: Any) -> dict[tuple[str, str], Home]:
    found: dict[tuple[str, str], Home] = {}
    resources = answer.get("resources") if isinstance(answer, dict) else None
    for each in resources if isinstance(resources, list) else []:
        name, kind = (each.get("name"), each.get("kind")) if isinstance(each, dict) else (None, None)
        if isinstance(name, str) and isinstance(kind, str) and "/" not in name:
            found[api_version, kind] = Home(root, name, bool(each.get("namespaced")))
    return found
