"""What the gateway's API server may do: to sandboxes and their parts, in the one namespace that they are in.

It can run commands in the pods there, and read no Secret. Not here: the server itself (api_server.py).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from holdfast.gateway.workloads.blueprint import MANAGED
from holdfast.sandbox.api import EXTENSIONS_GROUP, GROUP

if TYPE_CHECKING:
    from holdfast.gateway.workloads.blueprint import Blueprint

NAME = "holdfast-api"
_RBAC = "rbac.authorization.k8s.io"
_LOOK = ["get", "list", "watch"]


def api_server_rights(blueprint: Blueprint) -> list[dict[str, Any]]:
    """A Role and its binding, and the namespace itself where it is one that nobody else makes."""
    labels = {**MANAGED, "app.kubernetes.io/name": NAME}
    here = {"name": NAME, "namespace": blueprint.sandbox_namespace, "labels": labels}
    subject = {"kind": "ServiceAccount", "name": NAME, "namespace": blueprint.namespace}
    role = {"apiGroup": _RBAC, "kind": "Role", "name": NAME}
    made: list[dict[str, Any]] = []
    if blueprint.sandbox_namespace not in ("default", blueprint.namespace):
        about = {"name": blueprint.sandbox_namespace, "labels": MANAGED}
        made.append({"apiVersion": "v1", "kind": "Namespace", "metadata": about})
    return [
        *made,
        {"apiVersion": f"{_RBAC}/v1", "kind": "Role", "metadata": here, "rules": rules()},
        {
            "apiVersion": f"{_RBAC}/v1",
            "kind": "RoleBinding",
            "metadata": here,
            "roleRef": role,
            "subjects": [subject],
        },
    ]


def rules() -> list[dict[str, Any]]:
    """The rights; nothing is given that is not used."""
    return [
        _rule(GROUP, ["sandboxes"], [*_LOOK, "create", "patch", "delete"]),
        _rule(EXTENSIONS_GROUP, ["sandboxclaims"], [*_LOOK, "create", "delete"]),
        _rule(EXTENSIONS_GROUP, ["sandboxwarmpools"], ["list"]),
        # Some clusters ask for this of whoever makes an object that its owner waits for.
        _rule(GROUP, ["sandboxes/finalizers"], ["update"]),
        _rule("", ["persistentvolumeclaims"], ["get", "patch"]),
        _rule("", ["pods", "pods/log"], ["get"]),
        # A WebSocket begins as a GET; newer versions ask for the right to create as well.
        _rule("", ["pods/exec", "pods/portforward"], ["get", "create"]),
        _rule("networking.k8s.io", ["networkpolicies"], ["get", "create", "patch"]),
    ]


def _rule(group: str, resources: list[str], verbs: list[str]) -> dict[str, Any]:
    return {"apiGroups": [group], "resources": resources, "verbs": verbs}
