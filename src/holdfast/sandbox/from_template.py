"""Sandboxes created from a template: warm ones for a pool, cold ones for a SandboxClaim."""

from __future__ import annotations

import copy
import hashlib
import json
from typing import TYPE_CHECKING, Any

from holdfast.api import (
    API_VERSION,
    LAUNCH_TYPE_LABEL,
    REPLACEMENT_COUNT_ANNOTATION,
    TEMPLATE_HASH_LABEL,
    TEMPLATE_REF_ANNOTATION,
    TEMPLATE_REF_HASH_LABEL,
    WARM_POOL_LABEL,
)
from holdfast.sandbox.manifests import name_hash, owner_reference

if TYPE_CHECKING:
    from collections.abc import Mapping

_COPIED_FIELDS = ("podTemplate", "volumeClaimTemplates", "service")
_HASH_LENGTH = 12


def template_hash(template: Mapping[str, Any]) -> str:
    """Hash of the spec that a template gives its sandboxes, without the labels and annotations of pods."""
    spec = template["spec"]
    hashed = {key: spec.get(key) for key in _COPIED_FIELDS} | {"podTemplate": spec["podTemplate"]["spec"]}
    return content_hash(hashed)


def content_hash(value: Any) -> str:
    """Hash of a JSON value, independent of the order of its keys."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:_HASH_LENGTH]


def sandbox_spec(template: Mapping[str, Any]) -> dict[str, Any]:
    """Spec of a template's sandboxes; without a service account token unless the template enables it."""
    # Copy: the template belongs to the cache, which all reconcilers share.
    spec = {key: copy.deepcopy(template["spec"][key]) for key in _COPIED_FIELDS if key in template["spec"]}
    spec["podTemplate"]["spec"].setdefault("automountServiceAccountToken", False)
    spec["podTemplate"]["metadata"] = template_metadata(template)
    return spec


def template_metadata(template: Mapping[str, Any]) -> dict[str, Any]:
    """Pod metadata of a template's sandboxes, with the label that the template's network policy selects."""
    metadata = template["spec"]["podTemplate"].get("metadata") or {}
    labels = {**(metadata.get("labels") or {}), **template_labels(template["metadata"]["name"])}
    return copy.deepcopy({**metadata, "labels": labels})


def template_labels(template: str) -> dict[str, str]:
    """Labels of the pods of a template; its network policy selects them."""
    return {TEMPLATE_REF_HASH_LABEL: name_hash(template)}


def warm_sandbox(
    name: str, pool: Mapping[str, Any], template: Mapping[str, Any], *, replacement_count: int = 0
) -> dict[str, Any]:
    """Sandbox of a warm pool.

    Args:
        name: name of the sandbox.
        pool: the pool that owns it.
        template: the pool's template.
        replacement_count: how many of its predecessors ended in a row.
    """
    labels = {
        WARM_POOL_LABEL: name_hash(pool["metadata"]["name"]),
        TEMPLATE_HASH_LABEL: template_hash(template),
        LAUNCH_TYPE_LABEL: "warm",
    }
    spec = sandbox_spec(template)
    # The pool's scale subresource selects pods by this label: autoscalers measure warm sandboxes.
    spec["podTemplate"]["metadata"]["labels"][WARM_POOL_LABEL] = labels[WARM_POOL_LABEL]
    manifest = sandbox_manifest(name, pool, template, labels, spec)
    if replacement_count:
        manifest["metadata"]["annotations"][REPLACEMENT_COUNT_ANNOTATION] = str(replacement_count)
    return manifest


def sandbox_manifest(
    name: str,
    owner: Mapping[str, Any],
    template: Mapping[str, Any],
    labels: dict[str, str],
    spec: Mapping[str, Any],
) -> dict[str, Any]:
    """Sandbox from a template, controlled by its warm pool or SandboxClaim."""
    return {
        "apiVersion": API_VERSION,
        "kind": "Sandbox",
        "metadata": {
            "name": name,
            "namespace": owner["metadata"]["namespace"],
            "labels": labels,
            "annotations": {TEMPLATE_REF_ANNOTATION: template["metadata"]["name"]},
            "ownerReferences": [owner_reference(owner)],
        },
        "spec": dict(spec),
    }
