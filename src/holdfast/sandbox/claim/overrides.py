"""What a SandboxClaim may change about its sandbox: pod metadata, environment, volume claim templates.

A SandboxClaim adds labels and annotations but does not override them: the template's values stay, and keys
that controllers, Services and network policies select by are reserved. Whether it may set environment
variables and volume claim templates is up to the template. A rejection is a Ready condition with a reason of
the published API.
"""

from __future__ import annotations

import copy
import re
from typing import TYPE_CHECKING, Any

from holdfast.api import (
    MANAGED_BY_LABEL,
    SANDBOX_CLAIM_UID_LABEL,
    SANDBOX_ID_LABEL,
    SandboxClaimReason,
)
from holdfast.sandbox.from_template import sandbox_spec, template_metadata
from holdfast.sandbox.manifests import merge_patch
from holdfast.sandbox.network_policy import find_allowing_label
from holdfast.sandbox.status import not_ready_condition
from holdfast.sandbox.validation import is_router_label, reserved_annotation_reason, reserved_label_reason

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from holdfast.sandbox.status import ConditionUpdate


_LABEL_NAME = re.compile(r"[A-Za-z0-9](?:[-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")
_LABEL_PREFIX = re.compile(r"[a-z0-9](?:[-a-z0-9.]{0,251}[a-z0-9])?")
METADATA_FIELDS = ("labels", "annotations")


def additional_pod_metadata(sandbox_claim: Mapping[str, Any], field: str) -> dict[str, str]:
    """The labels or annotations that a SandboxClaim adds to its pod."""
    return dict((sandbox_claim["spec"].get("additionalPodMetadata") or {}).get(field) or {})


def inherited_labels(sandbox_claim: Mapping[str, Any]) -> dict[str, str]:
    """Labels of the SandboxClaim itself that its sandbox gets too, among them the sandbox ID."""
    labels = sandbox_claim["metadata"].get("labels") or {}
    kept = (SANDBOX_ID_LABEL, MANAGED_BY_LABEL)
    return {key: value for key, value in labels.items() if key in kept or not reserved_label_reason(key)}


def merge_pod_metadata(
    base: Mapping[str, Any] | None, sandbox_claim: Mapping[str, Any]
) -> dict[str, dict[str, str]]:
    """Pod metadata with the additions of a SandboxClaim and its UID label."""
    merged = {
        field: {**((base or {}).get(field) or {}), **additional_pod_metadata(sandbox_claim, field)}
        for field in METADATA_FIELDS
    }
    merged["labels"][SANDBOX_CLAIM_UID_LABEL] = sandbox_claim["metadata"]["uid"]
    return {field: entries for field, entries in merged.items() if entries}


def metadata_patch(actual: Mapping[str, Any] | None, desired: Mapping[str, Any]) -> dict[str, Any]:
    """Merge patch between two metadata; empty if they are equal."""
    before, after = (
        {field: (metadata or {}).get(field) or {} for field in METADATA_FIELDS}
        for metadata in (actual, desired)
    )
    return merge_patch(before, after)


def find_metadata_rejection(
    sandbox_claim: Mapping[str, Any],
    base: Mapping[str, Any] | None,
    policies: Sequence[Mapping[str, Any]],
    current: Mapping[str, Any] | None = None,
) -> ConditionUpdate | None:
    """Find the first label or annotation that a SandboxClaim may not add.

    Args:
        sandbox_claim: the SandboxClaim.
        base: pod metadata without the SandboxClaim's.
        policies: network policies that may select pods by an added label.
        current: metadata that the pod has already. Rules and policies that came later do not apply to it.
    """
    source = "the template" if current is None else "the sandbox"
    for field in METADATA_FIELDS:
        fixed, present = ((metadata or {}).get(field) or {} for metadata in (base, current))
        for key, value in additional_pod_metadata(sandbox_claim, field).items():
            if present.get(key) == value:
                continue
            problem = _format_error(field, key, value) or _reserved_key_error(field, key, value)
            if not problem and fixed.get(key, value) != value:
                problem = f"{key}={value} conflicts with {key}={fixed[key]} of {source}"
            if problem:
                return _metadata_rejection(field, problem)
    known = {**((base or {}).get("labels") or {}), **((current or {}).get("labels") or {})}
    added = additional_pod_metadata(sandbox_claim, "labels")
    new = {key: value for key, value in added.items() if known.get(key) != value}
    # A label can open a connection that the template denies: network policies select their peers by label.
    for policy in policies:
        matched = find_allowing_label(new, policy, namespace=sandbox_claim["metadata"]["namespace"])
        if matched is not None:
            name = f"{policy['metadata']['namespace']}/{policy['metadata']['name']}"
            return _metadata_rejection(
                "labels", f"network policy {name} allows connections of pods with the label {matched}"
            )
    return None


def _metadata_rejection(field: str, problem: str) -> ConditionUpdate:
    return not_ready_condition(
        SandboxClaimReason.INVALID_METADATA, f"additionalPodMetadata.{field}: {problem}"
    )


def _format_error(field: str, key: str, value: str) -> str:
    prefix, slash, name = key.rpartition("/")
    if not _LABEL_NAME.fullmatch(name) or (slash and not _LABEL_PREFIX.fullmatch(prefix)):
        return f"{key!r} is not a valid key"
    if field == "labels" and value and not _LABEL_NAME.fullmatch(value):
        return f"{value!r} is not a valid value of the label {key!r}"
    return ""


def _reserved_key_error(field: str, key: str, value: str) -> str:
    reason = reserved_label_reason(key) if field == "labels" else reserved_annotation_reason(key)
    if reason:
        return f"{key} is reserved: {reason}"
    if field == "labels" and is_router_label(key, value):
        return f"{key}={value} is reserved: sandboxes of templates accept connections from it"
    return ""


def needs_cold_sandbox(sandbox_claim: Mapping[str, Any]) -> bool:
    """Whether a SandboxClaim needs a new sandbox: a running one cannot get other variables or volumes."""
    return bool(sandbox_claim["spec"].get("env") or sandbox_claim["spec"].get("volumeClaimTemplates"))


def find_rejection(
    sandbox_claim: Mapping[str, Any], template: Mapping[str, Any], policies: Sequence[Mapping[str, Any]] = ()
) -> ConditionUpdate | None:
    """Find the first part of a SandboxClaim that its template does not allow."""
    return (
        find_metadata_rejection(sandbox_claim, template_metadata(template), policies)
        or _env_rejection(sandbox_claim, template)
        or _pvc_templates_rejection(sandbox_claim, template)
    )


def cold_sandbox_spec(sandbox_claim: Mapping[str, Any], template: Mapping[str, Any]) -> dict[str, Any]:
    """Spec of a sandbox for a SandboxClaim that `find_rejection` accepts."""
    spec = sandbox_spec(template)
    spec["podTemplate"]["metadata"] = merge_pod_metadata(template_metadata(template), sandbox_claim)
    for variable in sandbox_claim["spec"].get("env") or ():
        _set_env_var(_find_container(spec["podTemplate"]["spec"], variable), variable)
    added = sandbox_claim["spec"].get("volumeClaimTemplates") or ()
    names = {_metadata_name(entry) for entry in added}
    kept = [entry for entry in spec.get("volumeClaimTemplates") or () if _metadata_name(entry) not in names]
    if kept or added:
        spec["volumeClaimTemplates"] = [*kept, *copy.deepcopy(list(added))]
    return spec


def _env_rejection(sandbox_claim: Mapping[str, Any], template: Mapping[str, Any]) -> ConditionUpdate | None:
    variables = sandbox_claim["spec"].get("env") or ()
    policy = template["spec"].get("envVarsInjectionPolicy") or "Disallowed"
    problem = "the template does not allow environment variables" if variables else ""
    if policy != "Disallowed":
        pod, added = template["spec"]["podTemplate"]["spec"], set[tuple[str, str]]()
        problems = (_env_var_error(pod, variable, policy, added) for variable in variables)
        problem = next(filter(None, problems), "")
    return not_ready_condition(SandboxClaimReason.ENV_VARS_INJECTION_REJECTED, problem) if problem else None


def _env_var_error(
    pod: Mapping[str, Any], variable: Mapping[str, Any], policy: str, added: set[tuple[str, str]]
) -> str:
    """Why a variable cannot be set; records it in `added`, by container and name."""
    container, name = _find_container(pod, variable), variable["name"]
    if container is None:
        return f"the template has no container {variable.get('containerName')!r}"
    if policy != "Allowed":
        return ""
    # The keys of the ConfigMap or Secret are unknown here: every name may be one of them.
    if container.get("envFrom"):
        return f"{name} may override a variable from envFrom of container {container['name']}"
    existing = {entry["name"] for entry in container.get("env") or ()}
    if name in existing or (container["name"], name) in added:
        return f"{name} is already set, and the template does not allow overrides"
    added.add((container["name"], name))
    return ""


def _pvc_templates_rejection(
    sandbox_claim: Mapping[str, Any], template: Mapping[str, Any]
) -> ConditionUpdate | None:
    names = [_metadata_name(entry) for entry in sandbox_claim["spec"].get("volumeClaimTemplates") or ()]
    policy = template["spec"].get("volumeClaimTemplatesPolicy") or "Disallowed"
    existing = {_metadata_name(entry) for entry in template["spec"].get("volumeClaimTemplates") or ()}
    problem = ""
    if names and policy == "Disallowed":
        problem = "the template does not allow volume claim templates"
    elif "" in names:
        problem = f"volume claim template {names.index('') + 1} has no name"
    elif duplicate := next((name for name in names if names.count(name) > 1), ""):
        problem = f"two volume claim templates have the name {duplicate!r}"
    elif policy == "Allowed" and (override := next((name for name in names if name in existing), "")):
        problem = f"volume claim template {override!r} exists, and the template does not allow overrides"
    return not_ready_condition(SandboxClaimReason.VOLUME_CLAIM_TEMPLATES_ERROR, problem) if problem else None


def _find_container(pod: Mapping[str, Any], variable: Mapping[str, Any]) -> Any:
    """The container or init container that a variable names; the first container if it names none."""
    containers, name = pod.get("containers") or (), variable.get("containerName")
    if not name:
        return next(iter(containers), None)
    candidates = (*(pod.get("initContainers") or ()), *containers)
    return next((container for container in candidates if container["name"] == name), None)


def _set_env_var(container: dict[str, Any], variable: Mapping[str, Any]) -> None:
    """Set a variable. An existing one keeps its position: later variables may refer to it."""
    new = {"name": variable["name"], "value": variable["value"]}
    existing = list(container.get("env") or ())
    replaced = [new if entry["name"] == new["name"] else entry for entry in existing]
    container["env"] = replaced if new in replaced else [*existing, new]


def _metadata_name(entry: Mapping[str, Any]) -> str:
    return str((entry.get("metadata") or {}).get("name") or "")
