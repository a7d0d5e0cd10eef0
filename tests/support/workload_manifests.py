"""The manifests of the gateway's own workloads, for one example gateway."""

from __future__ import annotations

from typing import Any

from holdfast.gateway.cluster.manifests import (
    ManifestContext,
    build_api_server_manifests,
    build_controller_manifests,
)

API_SERVER = "holdfast-api"
CONTROLLER = "holdfast-controller"


def manifest_context(**changes: Any) -> ManifestContext:
    """The values of the example gateway, with changes."""
    fields = {
        "gateway": "dev",
        "namespace": "holdfast",
        "host_port": 8443,
        "image_digest": "sha256:1",
        "bundle_digest": "b1",
    }
    return ManifestContext(**{**fields, **changes})


def api_server_rules() -> list[dict[str, Any]]:
    """The permissions of the API server in the sandbox namespace."""
    return _rules(build_api_server_manifests(manifest_context()), "Role")


def cluster_rules() -> list[dict[str, Any]]:
    """The permissions of the controller in all namespaces."""
    return _rules(build_controller_manifests(manifest_context()), "ClusterRole")


def lease_rules() -> list[dict[str, Any]]:
    """The permissions of the controller in its own namespace."""
    return _rules(build_controller_manifests(manifest_context()), "Role")


def _rules(manifests: list[dict[str, Any]], kind: str) -> list[dict[str, Any]]:
    (role,) = [manifest for manifest in manifests if manifest["kind"] == kind]
    return list(role["rules"])
