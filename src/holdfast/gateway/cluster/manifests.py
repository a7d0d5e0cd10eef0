"""Manifests of the gateway's own workloads: the API server and the controller, with their RBAC.

Each runs as one pod with a read-only root file system, no capabilities and only the permissions that it uses.
The manifests are in `api-server.yaml` and `controller.yaml`; this module replaces their placeholders.
"""

from __future__ import annotations

import functools
import hashlib
import re
from pathlib import Path
from string import Template
from typing import Any

import msgspec

from holdfast.gateway.spec import GATEWAY_IMAGE

MANAGED_LABELS = {"app.kubernetes.io/managed-by": "holdfast", "app.kubernetes.io/part-of": "holdfast"}
# Pod annotation with the hash of the template that the pod was created from.
TEMPLATE_ANNOTATION = "holdfast.dev/template"
IMAGE_DIGEST_ANNOTATION = "holdfast.dev/image"
BUNDLE_DIGEST_ANNOTATION = "holdfast.dev/certificates"

API_SERVER_NAME = "holdfast-api"

# Variables of the API server that are omitted if they are empty.
_OPTIONAL_VARIABLES = (
    "HOLDFAST_SERVER_STORAGE_CLASS", "HOLDFAST_SERVER_PROXY_SECRET", "HOLDFAST_SERVER_CA_CONFIG_MAP",
)  # fmt: skip
_PLACEHOLDER = re.compile(r"\$\{(\w+)\}")


class ManifestContext(msgspec.Struct, frozen=True, kw_only=True):
    """The values that the manifests of one gateway depend on; each field is a placeholder in the YAML files.

    The digests are annotations of the pod template. A rotated certificate, or another image under the same
    name, changes the template and so triggers exactly one rollout.
    """

    gateway: str
    node: str
    namespace: str
    host_port: int
    image_digest: str
    bundle_digest: str
    image: str = GATEWAY_IMAGE
    sandbox_namespace: str = "default"
    workspace_size: str = "2Gi"
    storage_class: str = ""
    proxy_secret: str = ""
    ca_config_map: str = ""


def service_dns_names(namespace: str) -> tuple[str, ...]:
    """The DNS names of the gateway's API inside the cluster."""
    suffixes = ("", f".{namespace}", f".{namespace}.svc", f".{namespace}.svc.cluster.local")
    return tuple(API_SERVER_NAME + suffix for suffix in suffixes)


def build_workloads(context: ManifestContext) -> list[dict[str, Any]]:
    """All objects of the API server and of the controller: ServiceAccounts, Service, RBAC, Deployments.

    Their namespaces are among them unless another step creates them.
    """
    values = msgspec.structs.asdict(context)
    documents = [*_load_yaml("api-server.yaml"), *_load_yaml("controller.yaml")]
    manifests = [_substitute(document, values) for document in documents]
    existing = {"default", context.namespace}
    manifests = [manifest for manifest in manifests if not _is_namespace_in(manifest, existing)]
    for deployment in deployments_of(manifests):
        template = deployment["spec"]["template"]
        (container,) = template["spec"]["containers"]
        container["env"] = [
            each for each in container["env"] if each["name"] not in _OPTIONAL_VARIABLES or each["value"]
        ]
        # The hash covers the digests in the annotations, so a new certificate or image changes it.
        content = msgspec.json.encode(template, order="deterministic")
        template["metadata"]["annotations"][TEMPLATE_ANNOTATION] = hashlib.sha256(content).hexdigest()[:16]
    return manifests


def _is_namespace_in(manifest: dict[str, Any], existing: set[str]) -> bool:
    """Whether a manifest creates a namespace that exists; adds the name otherwise."""
    name = manifest["metadata"]["name"]
    if manifest["kind"] != "Namespace" or name in existing:
        return bool(manifest["kind"] == "Namespace")
    existing.add(name)
    return False


def deployments_of(manifests: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The Deployments among the manifests."""
    return [manifest for manifest in manifests if manifest["kind"] == "Deployment"]


@functools.cache
def _load_yaml(file_name: str) -> list[dict[str, Any]]:
    import yaml

    # The cached documents are shared between threads. `_substitute` copies them, so no caller changes them.
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    return list(yaml.load_all(Path(__file__).with_name(file_name).read_bytes(), Loader=loader))


def _substitute(node: Any, values: dict[str, Any]) -> Any:
    """Copy a parsed document and replace its placeholders.

    This happens after parsing, so that a value cannot change the structure. A scalar that is one placeholder
    gets the value with its type: a number for `hostPort`, a string for a namespace named `123`.
    """
    if isinstance(node, dict):
        return {key: _substitute(value, values) for key, value in node.items()}
    if isinstance(node, list):
        return [_substitute(item, values) for item in node]
    if not isinstance(node, str) or "$" not in node:
        return node
    if placeholder := _PLACEHOLDER.fullmatch(node):
        return values[placeholder[1]]
    return Template(node).substitute(values)
