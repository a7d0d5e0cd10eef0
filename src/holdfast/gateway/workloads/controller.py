"""The controller of sandboxes: a Deployment with one pod, its account, and just the rights that it uses.

It works on all namespaces of the gateway. Several copies would agree by a Lease who works; one is enough
where there is one node. Not here: what the controller does (the controller floor).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from holdfast.gateway.workloads.blueprint import (
    IMAGE_DIGEST,
    MANAGED,
    container_security,
    pod_security,
    stamped,
)
from holdfast.sandbox.api import EXTENSIONS_GROUP, GROUP

if TYPE_CHECKING:
    from holdfast.gateway.workloads.blueprint import Blueprint

NAME = "holdfast-controller"
HEALTH_PORT = 8082
_RBAC = "rbac.authorization.k8s.io"
_SELECTOR = {"app.kubernetes.io/name": NAME}
_LABELS = {**MANAGED, **_SELECTOR}
_LOOK = ["get", "list", "watch"]
_MAKE = [*_LOOK, "create", "patch", "delete"]
_KINDS = {
    "sandboxes": GROUP,
    "sandboxtemplates": EXTENSIONS_GROUP,
    "sandboxwarmpools": EXTENSIONS_GROUP,
    "sandboxclaims": EXTENSIONS_GROUP,
}


def controller_manifests(blueprint: Blueprint) -> list[dict[str, Any]]:
    """Account, rights and Deployment."""
    return [
        {**_head("v1", "ServiceAccount", blueprint), "automountServiceAccountToken": False},
        *rights(blueprint.namespace, NAME),
        {**_head("apps/v1", "Deployment", blueprint), "spec": _deployment(blueprint)},
    ]


def rights(namespace: str, account: str) -> list[dict[str, Any]]:
    """What the account may do: in all namespaces to sandboxes and their parts, at home to its Lease."""
    subject = {"kind": "ServiceAccount", "name": account, "namespace": namespace}
    here = {"name": NAME, "namespace": namespace, "labels": _LABELS}
    everywhere = {"name": NAME, "labels": _LABELS}
    return [
        _rbac("ClusterRole", everywhere, rules=cluster_rules()),
        _rbac("ClusterRoleBinding", everywhere, roleRef=_role("ClusterRole"), subjects=[subject]),
        _rbac("Role", here, rules=lease_rules()),
        _rbac("RoleBinding", here, roleRef=_role("Role"), subjects=[subject]),
    ]


def cluster_rules() -> list[dict[str, Any]]:
    """The rights in all namespaces; nothing is given that is not used."""
    crds = sorted(f"{plural}.{group}" for plural, group in _KINDS.items())
    return [
        _rule(GROUP, ["sandboxes"], _MAKE),
        _rule(GROUP, ["sandboxes/status"], ["patch"]),
        _rule(EXTENSIONS_GROUP, ["sandboxtemplates", "sandboxwarmpools"], _LOOK),
        _rule(EXTENSIONS_GROUP, ["sandboxclaims"], [*_LOOK, "patch", "delete"]),
        _rule(EXTENSIONS_GROUP, ["sandboxclaims/status", "sandboxwarmpools/status"], ["patch"]),
        # Some clusters ask for these of whoever makes an object that its owner waits for.
        _rule(GROUP, ["sandboxes/finalizers"], ["update"]),
        _rule(
            EXTENSIONS_GROUP,
            ["sandboxclaims/finalizers", "sandboxwarmpools/finalizers", "sandboxtemplates/finalizers"],
            ["update"],
        ),
        _rule("", ["pods", "services", "persistentvolumeclaims"], _MAKE),
        _rule("networking.k8s.io", ["networkpolicies"], _MAKE),
        # How large their disks are: not every storage class looks itself.
        _rule("", ["nodes"], ["list"]),
        {**_rule("apiextensions.k8s.io", ["customresourcedefinitions"], _LOOK), "resourceNames": crds},
    ]


def lease_rules() -> list[dict[str, Any]]:
    """The rights in its own namespace: one Lease. Making one cannot be limited to a name."""
    group = "coordination.k8s.io"
    return [
        {**_rule(group, ["leases"], [*_LOOK, "patch"]), "resourceNames": [NAME]},
        _rule(group, ["leases"], ["create"]),
    ]


def _rule(group: str, resources: list[str], verbs: list[str]) -> dict[str, Any]:
    return {"apiGroups": [group], "resources": resources, "verbs": verbs}


def _rbac(kind: str, metadata: dict[str, Any], **parts: Any) -> dict[str, Any]:
    return {"apiVersion": f"{_RBAC}/v1", "kind": kind, "metadata": metadata, **parts}


def _role(kind: str) -> dict[str, str]:
    return {"apiGroup": _RBAC, "kind": kind, "name": NAME}


def _head(api_version: str, kind: str, blueprint: Blueprint) -> dict[str, Any]:
    return {
        "apiVersion": api_version,
        "kind": kind,
        "metadata": {"name": NAME, "namespace": blueprint.namespace, "labels": _LABELS},
    }


def _deployment(blueprint: Blueprint) -> dict[str, Any]:
    template = {"metadata": {"labels": _LABELS}, "spec": _pod(blueprint)}
    return {
        "replicas": 1,
        "revisionHistoryLimit": 2,
        # An old one that still works would only make the new one wait.
        "strategy": {"type": "Recreate"},
        "selector": {"matchLabels": _SELECTOR},
        "template": stamped(template, {IMAGE_DIGEST: blueprint.image_digest}),
    }


def _pod(blueprint: Blueprint) -> dict[str, Any]:
    return {
        "serviceAccountName": NAME,
        "automountServiceAccountToken": True,
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": 10,
        "securityContext": pod_security(),
        "containers": [_container(blueprint)],
    }


def _container(blueprint: Blueprint) -> dict[str, Any]:
    return {
        "name": "controller",
        "image": blueprint.image,
        "imagePullPolicy": "Never",
        "args": ["controller", "run"],
        "env": [
            {"name": "HOLDFAST_CONTROLLER_LEASE_NAMESPACE", "value": blueprint.namespace},
            {"name": "HOLDFAST_CONTROLLER_LEASE_NAME", "value": NAME},
            # A container started again in the same pod holds the Lease of the one before, which is dead.
            {
                "name": "HOLDFAST_CONTROLLER_IDENTITY",
                "valueFrom": {"fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.uid"}},
            },
            {"name": "HOLDFAST_CONTROLLER_PORT", "value": str(HEALTH_PORT)},
            # The node's own network has no part that would keep to them.
            {"name": "HOLDFAST_CONTROLLER_NETWORK_POLICIES", "value": "ignored"},
        ],
        "ports": [{"name": "health", "containerPort": HEALTH_PORT, "protocol": "TCP"}],
        "startupProbe": _asks("/healthz", every=1, failures=60),
        "readinessProbe": _asks("/readyz", every=2, failures=3),
        "livenessProbe": _asks("/healthz", every=10, failures=3),
        "resources": {
            "requests": {"cpu": "20m", "memory": "96Mi"},
            "limits": {"cpu": "1", "memory": "512Mi"},
        },
        "securityContext": container_security(),
    }


def _asks(path: str, *, every: int, failures: int) -> dict[str, Any]:
    return {
        "httpGet": {"path": path, "port": "health", "scheme": "HTTP"},
        "periodSeconds": every,
        "timeoutSeconds": 3,
        "failureThreshold": failures,
    }
