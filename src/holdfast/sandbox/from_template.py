"""Sandboxes created from a template: warm ones for a pool, cold ones for a SandboxClaim."""

from __future__ import annotations

import copy
import functools
import hashlib
import json
from typing import TYPE_CHECKING, Any

from holdfast.api import (
    API_VERSION,
    CREATED_BY_LABEL,
    LAUNCH_TYPE_LABEL,
    REPLACEMENT_COUNT_ANNOTATION,
    TEMPLATE_FIELDS_HASH_LABEL,
    TEMPLATE_HASH_LABEL,
    TEMPLATE_REF_ANNOTATION,
    TEMPLATE_REF_HASH_LABEL,
    WARM_POOL_LABEL,
)
from holdfast.kube import parse_quantity
from holdfast.sandbox.manifests import name_hash, owner_reference

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

_COPIED_FIELDS = ("podTemplate", "volumeClaimTemplates", "service")
_HASH_LENGTH = 12
_MAX_REMEMBERED = 4096
# Fields of a pod or PVC. A Go client writes a quantity in its canonical form: `1024Mi` as `1Gi`.
_QUANTITY_MAPS = frozenset({"limits", "requests", "overhead"})
_QUANTITY_FIELDS = frozenset({"sizeLimit", "divisor"})
# A Go client omits these if they are zero or false. It keeps optional fields, whose default may differ.
_OMITTED_WHEN_ZERO = frozenset({
    "divisor", "failureThreshold", "hostPort", "initialDelaySeconds", "periodSeconds", "successThreshold",
    "timeoutSeconds",
})  # fmt: skip
_OMITTED_WHEN_FALSE = frozenset({
    "hostIPC", "hostNetwork", "hostPID", "readOnly", "stdin", "stdinOnce", "tty",
})  # fmt: skip
# An empty storage class disables dynamic provisioning.
_POINTER_STRINGS = frozenset({"storageClassName", "volumeAttributesClassName"})
# Keys of users, where an empty string is a value.
_USER_KEYED_MAPS = frozenset({
    "annotations", "labels", "matchLabels", "nodeSelector", "options", "volumeAttributes",
})  # fmt: skip
# The default policy of a template lets no packet to the cluster's DNS server.
_PUBLIC_NAME_SERVERS = ["8.8.8.8", "1.1.1.1"]
SAFE_TO_EVICT_ANNOTATION = "cluster-autoscaler.kubernetes.io/safe-to-evict"


def has_template_spec(sandbox: Mapping[str, Any], template: Mapping[str, Any]) -> bool:
    """Whether a sandbox has the spec that a template gives now; labels and annotations do not count.

    A hash written by the published controller has another value for the same spec, so that only equal hashes
    are conclusive.
    """
    labels = sandbox["metadata"].get("labels") or {}
    if labels.get(TEMPLATE_FIELDS_HASH_LABEL) == _fields_hash(template):
        return True
    return _sandbox_fields(sandbox) == _template_fields(template)


def _memoize(function: Callable[[Mapping[str, Any]], str]) -> Callable[[Mapping[str, Any]], str]:
    """Remember results by object: the cache replaces an object when it changes, and never modifies it.

    A pool compares all its members with its template in each reconciliation.
    """
    known: dict[int, tuple[Mapping[str, Any], str]] = {}

    @functools.wraps(function)
    def call(obj: Mapping[str, Any]) -> str:
        # The entry holds the object, so that no other object can get its id.
        entry = known.get(id(obj))
        if entry is None or entry[0] is not obj:
            if len(known) >= _MAX_REMEMBERED:
                known.clear()
            entry = known[id(obj)] = (obj, function(obj))
        return entry[1]

    return call


@_memoize
def _sandbox_fields(sandbox: Mapping[str, Any]) -> str:
    return _effective_fields(sandbox["spec"])


@_memoize
def _template_fields(template: Mapping[str, Any]) -> str:
    return _effective_fields(sandbox_spec(template))


@_memoize
def _fields_hash(template: Mapping[str, Any]) -> str:
    return _json_hash(_shared_fields(template))


@_memoize
def _pod_template_hash(template: Mapping[str, Any]) -> str:
    return _json_hash(template["spec"]["podTemplate"])


def _effective_fields(spec: Mapping[str, Any]) -> str:
    """The fields of a sandbox that come from its template and make it outdated when they change.

    As JSON in a form that does not depend on which client wrote them.
    """
    volumes = [
        ((one.get("metadata") or {}).get("name"), _normal_form(one.get("spec")))
        for one in spec.get("volumeClaimTemplates") or ()
    ]
    pod = _normal_form(spec["podTemplate"]["spec"])
    return json.dumps([pod, volumes, spec.get("service")], sort_keys=True)


def _normal_form(value: Any, parent: str = "") -> Any:
    """A value without what clients written in Go add or omit, and with quantities by their amount."""
    if isinstance(value, list):
        return [_normal_form(item) for item in value]
    if not isinstance(value, dict):
        return value
    kept: dict[str, Any] = {}
    for key, given in value.items():
        is_quantity = parent in _QUANTITY_MAPS or key in _QUANTITY_FIELDS
        quantity = parse_quantity(given) if is_quantity else None
        entry = _normal_form(given, key) if quantity is None else str(quantity.normalize())
        if parent in _USER_KEYED_MAPS or not _is_omitted(key, entry):
            kept[key] = entry
    return kept


def _is_omitted(key: str, value: Any) -> bool:
    """Whether a field with this value means the same as no field."""
    if value is None:
        return True
    if value == "":
        return key not in _POINTER_STRINGS
    if isinstance(value, dict | list):
        # An empty selector selects everything, an absent one nothing.
        return not value and (key == "nodeSelector" or not key.lower().endswith("selector"))
    return (key in _OMITTED_WHEN_ZERO and value in (0, "0")) or (
        key in _OMITTED_WHEN_FALSE and value is False
    )


def _shared_fields(template: Mapping[str, Any]) -> dict[str, Any]:
    return {key: template["spec"][key] for key in _COPIED_FIELDS if key in template["spec"]}


def _json_hash(value: Any) -> str:
    """Hash in the form of the published labels."""
    return name_hash(json.dumps(value, sort_keys=True, separators=(",", ":")))


def content_hash(value: Any) -> str:
    """Hash of a JSON value, independent of the order of its keys."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:_HASH_LENGTH]


def sandbox_spec(template: Mapping[str, Any]) -> dict[str, Any]:
    """Spec of a template's sandboxes, with the defaults of the published API."""
    # Copy: the template belongs to the cache, which all reconcilers share.
    spec = copy.deepcopy(_shared_fields(template))
    pod = spec["podTemplate"]["spec"]
    pod.setdefault("automountServiceAccountToken", False)
    if uses_default_policy(template) and not pod.get("dnsPolicy"):
        pod["dnsPolicy"] = "None"
        pod["dnsConfig"] = {"nameservers": list(_PUBLIC_NAME_SERVERS), **(pod.get("dnsConfig") or {})}
    spec["podTemplate"]["metadata"] = template_metadata(template)
    return spec


def uses_default_policy(template: Mapping[str, Any]) -> bool:
    """Whether the sandboxes of a template get the default network policy."""
    spec = template["spec"]
    return spec.get("networkPolicyManagement") != "Unmanaged" and spec.get("networkPolicy") is None


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
    inherited = {
        WARM_POOL_LABEL: name_hash(pool["metadata"]["name"]),
        TEMPLATE_FIELDS_HASH_LABEL: _fields_hash(template),
        TEMPLATE_HASH_LABEL: _pod_template_hash(template),
        CREATED_BY_LABEL: "controller",
    }
    spec = sandbox_spec(template)
    metadata = spec["podTemplate"]["metadata"]
    metadata["labels"] |= inherited
    metadata["annotations"] = {SAFE_TO_EVICT_ANNOTATION: "true", **(metadata.get("annotations") or {})}
    manifest = sandbox_manifest(name, pool, template, {**inherited, LAUNCH_TYPE_LABEL: "warm"}, spec)
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
            "labels": {**labels, **template_labels(template["metadata"]["name"])},
            "annotations": {TEMPLATE_REF_ANNOTATION: template["metadata"]["name"]},
            "ownerReferences": [owner_reference(owner)],
        },
        "spec": dict(spec),
    }
