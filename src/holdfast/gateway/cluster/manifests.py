"""Manifests of the gateway's own workloads: the API server and the controller, with their RBAC.

Each runs as one pod with a read-only root file system, no capabilities and only the permissions that it uses.
"""

from __future__ import annotations

import hashlib
from typing import Any

import msgspec

from holdfast import __version__
from holdfast.api import EXTENSIONS_GROUP, GROUP
from holdfast.pki import CLIENT_CA_SECRET, SERVER_SECRET

# The image of all workloads of a gateway.
GATEWAY_IMAGE = f"holdfast/gateway:{__version__}"

MANAGED_LABELS = {"app.kubernetes.io/managed-by": "holdfast", "app.kubernetes.io/part-of": "holdfast"}
# Pod annotation with the hash of the template that the pod was created from.
TEMPLATE_ANNOTATION = "holdfast.dev/template"
IMAGE_DIGEST_ANNOTATION = "holdfast.dev/image"
BUNDLE_DIGEST_ANNOTATION = "holdfast.dev/certificates"

API_SERVER_NAME = "holdfast-api"
API_SERVER_PORT = 8443
API_SERVER_HEALTH_PORT = 8081
CONTROLLER_NAME = "holdfast-controller"
CONTROLLER_HEALTH_PORT = 8082

_NONROOT_ID = 65532
_NAME_LABEL = "app.kubernetes.io/name"
_RBAC_GROUP = "rbac.authorization.k8s.io"
_TLS_DIR, _CLIENT_CA_DIR = "/etc/holdfast/tls", "/etc/holdfast/client-ca"
_READ_VERBS = ["get", "list", "watch"]
_MANAGE_VERBS = [*_READ_VERBS, "create", "patch", "delete"]
_CRD_GROUPS = {
    "sandboxes": GROUP,
    "sandboxtemplates": EXTENSIONS_GROUP,
    "sandboxwarmpools": EXTENSIONS_GROUP,
    "sandboxclaims": EXTENSIONS_GROUP,
}


class ManifestContext(msgspec.Struct, frozen=True, kw_only=True):
    """The values that the manifests of one gateway depend on.

    The digests are annotations of the pod template. A rotated certificate, or another image under the same
    name, changes the template and so triggers exactly one rollout.
    """

    gateway: str
    namespace: str
    host_port: int
    image_digest: str
    bundle_digest: str
    image: str = GATEWAY_IMAGE
    sandbox_namespace: str = "default"
    workspace_size: str = "2Gi"
    storage_class: str = ""


def pod_security_context() -> dict[str, Any]:
    """An unprivileged user and the default seccomp profile."""
    return {
        "runAsNonRoot": True,
        "runAsUser": _NONROOT_ID,
        "runAsGroup": _NONROOT_ID,
        "fsGroup": _NONROOT_ID,
        "seccompProfile": {"type": "RuntimeDefault"},
    }


def container_security_context() -> dict[str, Any]:
    """No privilege escalation, no capabilities, a read-only root file system."""
    return {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }


def with_template_hash(template: dict[str, Any], digests: dict[str, str]) -> dict[str, Any]:
    """Return a pod template whose annotations are the digests and the hash of the template itself."""

    def with_annotations(annotations: dict[str, str]) -> dict[str, Any]:
        return {**template, "metadata": {**template["metadata"], "annotations": annotations}}

    content = msgspec.json.encode(with_annotations(digests), order="deterministic")
    return with_annotations({**digests, TEMPLATE_ANNOTATION: hashlib.sha256(content).hexdigest()[:16]})


def service_dns_names(namespace: str) -> tuple[str, ...]:
    """The DNS names of the gateway's API inside the cluster."""
    suffixes = ("", f".{namespace}", f".{namespace}.svc", f".{namespace}.svc.cluster.local")
    return tuple(API_SERVER_NAME + suffix for suffix in suffixes)


def build_api_server_manifests(context: ManifestContext) -> list[dict[str, Any]]:
    """ServiceAccount, Service, RBAC in the sandbox namespace, and Deployment of the API server."""
    digests = {IMAGE_DIGEST_ANNOTATION: context.image_digest, BUNDLE_DIGEST_ANNOTATION: context.bundle_digest}
    service = {
        "selector": {_NAME_LABEL: API_SERVER_NAME},
        "ports": [{"name": "https", "port": 443, "targetPort": "https", "protocol": "TCP"}],
    }
    pod = {
        "terminationGracePeriodSeconds": 5,
        "containers": [_api_server_container(context)],
        "volumes": [_secret_volume("tls", SERVER_SECRET), _secret_volume("client-ca", CLIENT_CA_SECRET)],
    }
    return [
        _service_account(API_SERVER_NAME, context.namespace),
        _object("v1", "Service", API_SERVER_NAME, context.namespace, spec=service),
        *api_server_rbac(context),
        _deployment(API_SERVER_NAME, context.namespace, pod, digests),
    ]


def _api_server_container(context: ManifestContext) -> dict[str, Any]:
    variables = {
        "NAME": context.gateway,
        "CERTIFICATE": f"{_TLS_DIR}/tls.crt",
        "KEY": f"{_TLS_DIR}/tls.key",
        "CLIENT_CA": f"{_CLIENT_CA_DIR}/ca.crt",
        "PORT": str(API_SERVER_PORT),
        "HEALTH_PORT": str(API_SERVER_HEALTH_PORT),
        "NAMESPACE": context.sandbox_namespace,
        "ENDPOINT": f"https://{API_SERVER_NAME}.{context.namespace}.svc",
        "WORKSPACE_SIZE": context.workspace_size,
        **({"STORAGE_CLASS": context.storage_class} if context.storage_class else {}),
    }
    container = _container("api", context, health_port=API_SERVER_HEALTH_PORT, memory=("64Mi", "256Mi"))
    https_port = {
        "name": "https",
        "containerPort": API_SERVER_PORT,
        "hostPort": context.host_port,
        "protocol": "TCP",
    }
    return {
        **container,
        "args": ["server", "run"],
        "env": [{"name": f"HOLDFAST_SERVER_{key}", "value": value} for key, value in variables.items()],
        "ports": [https_port, *container["ports"]],
        "readinessProbe": _http_probe("/healthz", period=5, failure_threshold=2),
        "volumeMounts": [
            {"name": "tls", "mountPath": _TLS_DIR, "readOnly": True},
            {"name": "client-ca", "mountPath": _CLIENT_CA_DIR, "readOnly": True},
        ],
    }


def _container(
    name: str, context: ManifestContext, *, health_port: int, memory: tuple[str, str]
) -> dict[str, Any]:
    """The part that the containers of both workloads have in common; `memory` is request and limit."""
    return {
        "name": name,
        "image": context.image,
        # `up` pushes the image into the node; no registry has it.
        "imagePullPolicy": "Never",
        "ports": [{"name": "health", "containerPort": health_port, "protocol": "TCP"}],
        "startupProbe": _http_probe("/healthz", period=1, failure_threshold=60),
        "livenessProbe": _http_probe("/healthz", period=10, failure_threshold=3),
        "resources": {
            "requests": {"cpu": "20m", "memory": memory[0]},
            "limits": {"cpu": "1", "memory": memory[1]},
        },
        "securityContext": container_security_context(),
    }


def api_server_rbac(context: ManifestContext) -> list[dict[str, Any]]:
    """Role and RoleBinding in the sandbox namespace, and that namespace unless another step creates it."""
    namespace = context.sandbox_namespace
    role = _role_and_binding(
        "Role", API_SERVER_NAME, namespace, api_server_rules(), API_SERVER_NAME, context.namespace
    )
    if namespace in ("default", context.namespace):
        return role
    metadata = {"name": namespace, "labels": MANAGED_LABELS}
    return [{"apiVersion": "v1", "kind": "Namespace", "metadata": metadata}, *role]


def api_server_rules() -> list[dict[str, Any]]:
    """The permissions of the API server; it can exec into the pods and read no Secret."""
    return [
        _policy_rule(GROUP, ["sandboxes"], _MANAGE_VERBS),
        _policy_rule(EXTENSIONS_GROUP, ["sandboxclaims"], [*_READ_VERBS, "create", "delete"]),
        _policy_rule(EXTENSIONS_GROUP, ["sandboxwarmpools"], ["list"]),
        # Clusters with OwnerReferencesPermissionEnforcement require this for blockOwnerDeletion.
        _policy_rule(GROUP, ["sandboxes/finalizers"], ["update"]),
        _policy_rule("", ["persistentvolumeclaims"], ["get", "patch"]),
        _policy_rule("", ["pods", "pods/log"], ["get"]),
        # A WebSocket starts as a GET; newer Kubernetes versions also require `create`.
        _policy_rule("", ["pods/exec", "pods/portforward"], ["get", "create"]),
        _policy_rule("networking.k8s.io", ["networkpolicies"], ["get", "create", "patch"]),
    ]


def build_controller_manifests(context: ManifestContext) -> list[dict[str, Any]]:
    """ServiceAccount, RBAC and Deployment of the controller, which works in all namespaces."""
    pod = {"terminationGracePeriodSeconds": 10, "containers": [_controller_container(context)]}
    return [
        _service_account(CONTROLLER_NAME, context.namespace),
        *controller_rbac(context.namespace, CONTROLLER_NAME),
        _deployment(CONTROLLER_NAME, context.namespace, pod, {IMAGE_DIGEST_ANNOTATION: context.image_digest}),
    ]


def _controller_container(context: ManifestContext) -> dict[str, Any]:
    return {
        **_container("controller", context, health_port=CONTROLLER_HEALTH_PORT, memory=("96Mi", "512Mi")),
        "args": ["controller", "run"],
        "env": [
            {"name": "HOLDFAST_CONTROLLER_LEASE_NAMESPACE", "value": context.namespace},
            {"name": "HOLDFAST_CONTROLLER_LEASE_NAME", "value": CONTROLLER_NAME},
            # The pod's UID: a container that restarts in the same pod keeps the Lease of its predecessor.
            {
                "name": "HOLDFAST_CONTROLLER_IDENTITY",
                "valueFrom": {"fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.uid"}},
            },
            {"name": "HOLDFAST_CONTROLLER_PORT", "value": str(CONTROLLER_HEALTH_PORT)},
            # The node's network does not enforce NetworkPolicies.
            {"name": "HOLDFAST_CONTROLLER_NETWORK_POLICIES", "value": "ignored"},
        ],
        "readinessProbe": _http_probe("/readyz", period=2, failure_threshold=3),
    }


def controller_rbac(namespace: str, account: str) -> list[dict[str, Any]]:
    """Cluster-wide permissions on sandboxes and their objects, and a Lease in the controller's namespace."""
    return [
        *_role_and_binding("ClusterRole", CONTROLLER_NAME, "", cluster_rules(), account, namespace),
        *_role_and_binding("Role", CONTROLLER_NAME, namespace, lease_rules(), account, namespace),
    ]


def cluster_rules() -> list[dict[str, Any]]:
    """The controller's permissions in all namespaces."""
    crds = sorted(f"{plural}.{group}" for plural, group in _CRD_GROUPS.items())
    return [
        _policy_rule(GROUP, ["sandboxes"], _MANAGE_VERBS),
        _policy_rule(GROUP, ["sandboxes/status"], ["patch"]),
        _policy_rule(EXTENSIONS_GROUP, ["sandboxtemplates", "sandboxwarmpools"], _READ_VERBS),
        _policy_rule(EXTENSIONS_GROUP, ["sandboxclaims"], [*_READ_VERBS, "patch", "delete"]),
        _policy_rule(EXTENSIONS_GROUP, ["sandboxclaims/status", "sandboxwarmpools/status"], ["patch"]),
        # Clusters with OwnerReferencesPermissionEnforcement require these for blockOwnerDeletion.
        _policy_rule(GROUP, ["sandboxes/finalizers"], ["update"]),
        _policy_rule(
            EXTENSIONS_GROUP,
            ["sandboxclaims/finalizers", "sandboxwarmpools/finalizers", "sandboxtemplates/finalizers"],
            ["update"],
        ),
        _policy_rule("", ["pods", "services", "persistentvolumeclaims"], _MANAGE_VERBS),
        _policy_rule("networking.k8s.io", ["networkpolicies"], _MANAGE_VERBS),
        # Disk capacity: not every storage class checks it.
        _policy_rule("", ["nodes"], ["list"]),
        {
            **_policy_rule("apiextensions.k8s.io", ["customresourcedefinitions"], _READ_VERBS),
            "resourceNames": crds,
        },
    ]


def lease_rules() -> list[dict[str, Any]]:
    """The controller's permissions in its own namespace: one Lease. RBAC cannot limit `create` to a name."""
    group = "coordination.k8s.io"
    return [
        {**_policy_rule(group, ["leases"], [*_READ_VERBS, "patch"]), "resourceNames": [CONTROLLER_NAME]},
        _policy_rule(group, ["leases"], ["create"]),
    ]


def _object(api_version: str, kind: str, name: str, namespace: str, **fields: Any) -> dict[str, Any]:
    metadata = {"name": name, "namespace": namespace, "labels": {**MANAGED_LABELS, _NAME_LABEL: name}}
    if not namespace:
        del metadata["namespace"]
    return {"apiVersion": api_version, "kind": kind, "metadata": metadata, **fields}


def _service_account(name: str, namespace: str) -> dict[str, Any]:
    return _object("v1", "ServiceAccount", name, namespace, automountServiceAccountToken=False)


def _role_and_binding(
    kind: str, name: str, namespace: str, rules: list[dict[str, Any]], account: str, account_namespace: str
) -> list[dict[str, Any]]:
    subject = {"kind": "ServiceAccount", "name": account, "namespace": account_namespace}
    reference = {"apiGroup": _RBAC_GROUP, "kind": kind, "name": name}
    version = f"{_RBAC_GROUP}/v1"
    return [
        _object(version, kind, name, namespace, rules=rules),
        _object(version, f"{kind}Binding", name, namespace, roleRef=reference, subjects=[subject]),
    ]


def _policy_rule(group: str, resources: list[str], verbs: list[str]) -> dict[str, Any]:
    return {"apiGroups": [group], "resources": resources, "verbs": verbs}


def _deployment(name: str, namespace: str, pod: dict[str, Any], digests: dict[str, str]) -> dict[str, Any]:
    """A Deployment of one pod; `Recreate`, because the API server's host port has room for one."""
    template = {
        "metadata": {"labels": {**MANAGED_LABELS, _NAME_LABEL: name}},
        "spec": {
            "serviceAccountName": name,
            "automountServiceAccountToken": True,
            "enableServiceLinks": False,
            "securityContext": pod_security_context(),
            **pod,
        },
    }
    spec = {
        "replicas": 1,
        "revisionHistoryLimit": 2,
        "strategy": {"type": "Recreate"},
        "selector": {"matchLabels": {_NAME_LABEL: name}},
        "template": with_template_hash(template, digests),
    }
    return _object("apps/v1", "Deployment", name, namespace, spec=spec)


def _http_probe(path: str, *, period: int, failure_threshold: int) -> dict[str, Any]:
    return {
        "httpGet": {"path": path, "port": "health", "scheme": "HTTP"},
        "periodSeconds": period,
        "timeoutSeconds": 3,
        "failureThreshold": failure_threshold,
    }


def _secret_volume(volume: str, name: str) -> dict[str, Any]:
    return {"name": volume, "secret": {"secretName": name, "defaultMode": 0o440}}
