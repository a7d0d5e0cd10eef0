"""The gateway's own API server: a Deployment with one pod, its account and rights, and a Service in front.

It is reached from outside by the node's port, which the engine publishes; that port has room for one pod, so
that an old one goes before a new one comes. Not here: what the server does (the server floor).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from holdfast.gateway.workloads.api_server_rights import api_server_rights
from holdfast.gateway.workloads.blueprint import (
    BUNDLE_DIGEST,
    IMAGE_DIGEST,
    MANAGED,
    container_security,
    pod_security,
    stamped,
)
from holdfast.pki.secret_data import CLIENT_CA_SECRET, SERVER_SECRET

if TYPE_CHECKING:
    from holdfast.gateway.workloads.blueprint import Blueprint

NAME = "holdfast-api"
PORT = 8443
HEALTH_PORT = 8081
_SELECTOR = {"app.kubernetes.io/name": NAME}
_LABELS = {**MANAGED, **_SELECTOR}
_TLS, _CLIENT_CA = "/etc/holdfast/tls", "/etc/holdfast/client-ca"


def service_names(namespace: str) -> tuple[str, ...]:
    """The names under which the API is reached from inside the cluster."""
    return tuple(f"{NAME}{rest}" for rest in ("", f".{namespace}", f".{namespace}.svc",
                                              f".{namespace}.svc.cluster.local"))  # fmt: skip


def api_server_manifests(blueprint: Blueprint) -> list[dict[str, Any]]:
    """Account, Service and Deployment, and the rights where the sandboxes are."""
    return [
        {**_head("v1", "ServiceAccount", blueprint), "automountServiceAccountToken": False},
        {**_head("v1", "Service", blueprint), "spec": _service()},
        *api_server_rights(blueprint),
        {**_head("apps/v1", "Deployment", blueprint), "spec": _deployment(blueprint)},
    ]


def _head(api_version: str, kind: str, blueprint: Blueprint) -> dict[str, Any]:
    return {
        "apiVersion": api_version,
        "kind": kind,
        "metadata": {"name": NAME, "namespace": blueprint.namespace, "labels": _LABELS},
    }


def _service() -> dict[str, Any]:
    return {
        "selector": _SELECTOR,
        "ports": [{"name": "https", "port": 443, "targetPort": "https", "protocol": "TCP"}],
    }


def _deployment(blueprint: Blueprint) -> dict[str, Any]:
    template = {"metadata": {"labels": _LABELS}, "spec": _pod(blueprint)}
    digests = {IMAGE_DIGEST: blueprint.image_digest, BUNDLE_DIGEST: blueprint.bundle_digest}
    return {
        "replicas": 1,
        "revisionHistoryLimit": 2,
        "strategy": {"type": "Recreate"},
        "selector": {"matchLabels": _SELECTOR},
        "template": stamped(template, digests),
    }


def _pod(blueprint: Blueprint) -> dict[str, Any]:
    return {
        "serviceAccountName": NAME,
        "automountServiceAccountToken": True,
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": 5,
        "securityContext": pod_security(),
        "containers": [_container(blueprint)],
        "volumes": [_secret("tls", SERVER_SECRET), _secret("client-ca", CLIENT_CA_SECRET)],
    }


def _container(blueprint: Blueprint) -> dict[str, Any]:
    return {
        "name": "api",
        "image": blueprint.image,
        # `up` puts it into the node; no registry has it.
        "imagePullPolicy": "Never",
        "args": ["server", "run"],
        "env": _environment(blueprint),
        "ports": [
            {"name": "https", "containerPort": PORT, "hostPort": blueprint.host_port, "protocol": "TCP"},
            {"name": "health", "containerPort": HEALTH_PORT, "protocol": "TCP"},
        ],
        "startupProbe": _health_check(every=1, failures=60),
        "readinessProbe": _health_check(every=5, failures=2),
        "livenessProbe": _health_check(every=10, failures=3),
        "resources": {
            "requests": {"cpu": "20m", "memory": "64Mi"},
            "limits": {"cpu": "1", "memory": "256Mi"},
        },
        "securityContext": container_security(),
        "volumeMounts": [
            {"name": "tls", "mountPath": _TLS, "readOnly": True},
            {"name": "client-ca", "mountPath": _CLIENT_CA, "readOnly": True},
        ],
    }


def _environment(blueprint: Blueprint) -> list[dict[str, str]]:
    variables = {
        "NAME": blueprint.gateway,
        "CERTIFICATE": f"{_TLS}/tls.crt",
        "KEY": f"{_TLS}/tls.key",
        "CLIENT_CA": f"{_CLIENT_CA}/ca.crt",
        "PORT": str(PORT),
        "HEALTH_PORT": str(HEALTH_PORT),
        "NAMESPACE": blueprint.sandbox_namespace,
        "ENDPOINT": f"https://{NAME}.{blueprint.namespace}.svc",
        "WORKSPACE_SIZE": blueprint.workspace_size,
        **({"STORAGE_CLASS": blueprint.storage_class} if blueprint.storage_class else {}),
    }
    return [{"name": f"HOLDFAST_SERVER_{key}", "value": value} for key, value in variables.items()]


def _health_check(*, every: int, failures: int) -> dict[str, Any]:
    return {
        "httpGet": {"path": "/healthz", "port": "health", "scheme": "HTTP"},
        "periodSeconds": every,
        "timeoutSeconds": 3,
        "failureThreshold": failures,
    }


def _secret(volume: str, name: str) -> dict[str, Any]:
    return {"name": volume, "secret": {"secretName": name, "defaultMode": 0o440}}
