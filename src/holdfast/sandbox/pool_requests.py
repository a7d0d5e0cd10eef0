"""Requests for templates and warm pools, and their manifests.

A template gives its sandboxes the pod that a request with the same options gives to one sandbox.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from holdfast.api import (
    EXTENSIONS_API_VERSION,
    MANAGED_BY_LABEL,
    PoolChange,
    PoolName,
    PoolOptions,
    PoolRequest,
    SandboxRequest,
    TemplateOptions,
    TemplateRequest,
)
from holdfast.errors import UsageError
from holdfast.sandbox import from_request
from holdfast.sandbox.host_settings import HostSettings
from holdfast.sandbox.validation import convert_options, reject_reserved_labels, validate_name

if TYPE_CHECKING:
    from typing import Unpack

_NO_SETTINGS = HostSettings()
_ALLOW_ALL: list[dict[str, Any]] = [{}]


def build_template_request(
    name: str, *, image: str | None = None, **options: Unpack[TemplateOptions]
) -> TemplateRequest:
    """Build a request for a template.

    Args:
        name: name of the template.
        image: container image.
        **options: other fields; None means the gateway's default.

    Raises:
        UsageError: an option is unknown or invalid.
    """
    validate_name(name, "template")
    required = {"name": name, "image": image}
    return convert_options(TemplateRequest, TemplateOptions, required, options, kind="template")


def build_pool_request(name: str, template: str, **options: Unpack[PoolOptions]) -> PoolRequest:
    """Build a request for a warm pool.

    Args:
        name: name of the pool.
        template: template of its sandboxes.
        **options: other fields; None means the gateway's default.

    Raises:
        UsageError: an option is unknown or invalid.
    """
    _validate_pool_name(name)
    validate_name(template, "template")
    required = {"name": name, "template": template}
    return convert_options(PoolRequest, PoolOptions, required, options, kind="pool")


def build_pool_change(size: int) -> PoolChange:
    """Build a change of a pool's size.

    Raises:
        UsageError: the size is not valid.
    """
    return convert_options(PoolChange, PoolOptions, {}, {"size": size}, kind="pool")


def _validate_pool_name(name: str) -> None:
    try:
        msgspec.convert(name, PoolName)
    except msgspec.ValidationError as error:
        raise UsageError(
            f"{name!r}: not a valid pool name",
            hint="Use at most 56 lower-case letters, digits and dashes, with a letter or digit at both ends.",
        ) from error


def template_manifest(
    request: TemplateRequest,
    *,
    namespace: str,
    endpoint: str | None,
    host_settings: HostSettings = _NO_SETTINGS,
) -> dict[str, Any]:
    """Build the SandboxTemplate for a request.

    Args:
        request: the request.
        namespace: namespace of the template.
        endpoint: URL of the gateway's API as seen from sandboxes; None if sandboxes cannot use it.
        host_settings: proxy and CA certificates of the gateway's host.

    Raises:
        UsageError: the request sets a reserved label or environment variable, or too little memory.
    """
    reject_reserved_labels(request.labels)
    pod_request = SandboxRequest(**msgspec.structs.asdict(request))
    pod_spec = from_request.pod_spec(pod_request, None, endpoint, host_settings)
    labels = {**request.labels, MANAGED_BY_LABEL: "holdfast"}
    return {
        "apiVersion": EXTENSIONS_API_VERSION,
        "kind": "SandboxTemplate",
        "metadata": {"name": request.name, "namespace": namespace, "labels": dict(labels)},
        "spec": {
            "podTemplate": {"metadata": {"labels": labels}, "spec": pod_spec},
            # As without a template: a request may set each variable, and replace those of the template.
            "envVarsInjectionPolicy": "Overrides",
            **_network_policy_fields(request),
            **from_request.volume_claim_templates(pod_request),
        },
    }


def _network_policy_fields(request: TemplateRequest) -> dict[str, Any]:
    """Rules of a template. Unlike a sandbox's own policy, a template's policy always has both directions."""
    policy = request.network_policy
    if policy is None:
        # Without rules, the published API would deny connections to the cluster, its DNS server included.
        return {"networkPolicyManagement": "Unmanaged"}
    return {
        "networkPolicyManagement": "Managed",
        "networkPolicy": {
            "ingress": _ALLOW_ALL if policy.ingress is None else policy.ingress,
            "egress": _ALLOW_ALL if policy.egress is None else policy.egress,
        },
    }


def pool_manifest(request: PoolRequest, *, namespace: str) -> dict[str, Any]:
    """Build the SandboxWarmPool for a request."""
    return {
        "apiVersion": EXTENSIONS_API_VERSION,
        "kind": "SandboxWarmPool",
        "metadata": {
            "name": request.name,
            "namespace": namespace,
            "labels": {MANAGED_BY_LABEL: "holdfast"},
        },
        "spec": {
            "sandboxTemplateRef": {"name": request.template},
            "replicas": request.size,
            "updateStrategy": {"type": request.update_strategy},
        },
    }
