"""The manifests of the gateway's own workloads, for one example gateway."""

from __future__ import annotations

from typing import Any

from holdfast.gateway.cluster.manifests import ManifestContext, build_workloads

API_SERVER = "holdfast-api"
CONTROLLER = "holdfast-controller"


def manifest_context(**changes: Any) -> ManifestContext:
    """The values of the example gateway, with changes."""
    fields = {
        "gateway": "dev",
        "node": "holdfast-dev",
        "namespace": "holdfast",
        "host_port": 8443,
        "image_digest": "sha256:1",
        "bundle_digest": "b1",
    }
    return ManifestContext(**{**fields, **changes})


def api_server_rules() -> list[dict[str, Any]]:
    """The permissions of the API server in the sandbox namespace."""
    return _rules("Role", API_SERVER)


def cluster_rules() -> list[dict[str, Any]]:
    """The permissions of the controller in all namespaces."""
    return _rules("ClusterRole", CONTROLLER)


def lease_rules() -> list[dict[str, Any]]:
    """The permissions of the controller in its own namespace."""
    return _rules("Role", CONTROLLER)


def _rules(kind: str, name: str) -> list[dict[str, Any]]:
    manifests = build_workloads(manifest_context())
    (role,) = [each for each in manifests if each["kind"] == kind and each["metadata"]["name"] == name]
    return list(role["rules"])
