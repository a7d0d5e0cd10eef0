"""Labels and annotations that a SandboxClaim adds to its pod, and the published rules for them.

Labels select pods: by network policies, by Services and by controllers. So a SandboxClaim may add labels of
allowed domains only. That includes those that holdfast's API creates: everyone who may create a SandboxClaim
can give it the labels of one from the API.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from holdfast.api import (
    CREATED_BY_LABEL,
    MANAGED_BY_LABEL,
    SANDBOX_CLAIM_UID_LABEL,
    SANDBOX_ID_LABEL,
    SandboxClaimReason,
    SandboxReason,
)
from holdfast.sandbox.manifests import merge_patch
from holdfast.sandbox.network_policy import MANAGED_LABELS, find_allowing_label
from holdfast.sandbox.status import not_ready_condition
from holdfast.sandbox.validation import (
    DEFAULT_LABEL_DOMAINS,
    is_in_domains,
    is_router_label,
    reserved_annotation_reason,
    reserved_label_reason,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from holdfast.sandbox.status import ConditionUpdate

METADATA_FIELDS = ("labels", "annotations")
_KINDS = {"labels": "label", "annotations": "annotation"}
_VALUE_PATTERN = r"(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?"
_VALUE = re.compile(_VALUE_PATTERN)
_NAME = re.compile(r"[A-Za-z0-9](?:[-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")
_PREFIX = re.compile(r"[a-z0-9](?:[-a-z0-9.]{0,251}[a-z0-9])?")
_MAX_VALUE_LENGTH = 63


def additional_pod_metadata(sandbox_claim: Mapping[str, Any], field: str) -> dict[str, str]:
    """The labels or annotations that a SandboxClaim adds to its pod."""
    return dict((sandbox_claim["spec"].get("additionalPodMetadata") or {}).get(field) or {})


def has_additional_metadata(sandbox_claim: Mapping[str, Any]) -> bool:
    """Whether a SandboxClaim adds anything."""
    return any(additional_pod_metadata(sandbox_claim, field) for field in METADATA_FIELDS)


def is_from_holdfast(sandbox_claim: Mapping[str, Any]) -> bool:
    """Whether a SandboxClaim has the label of holdfast's API. It is no proof: every client can set labels."""
    return MANAGED_LABELS.items() <= (sandbox_claim["metadata"].get("labels") or {}).items()


def inherited_labels(sandbox_claim: Mapping[str, Any]) -> dict[str, str]:
    """Labels of the SandboxClaim itself that its sandbox gets too.

    The published API copies only who created it. holdfast's API selects its sandboxes by the other labels.
    """
    labels = sandbox_claim["metadata"].get("labels") or {}
    kept: tuple[str, ...] = (CREATED_BY_LABEL, SANDBOX_ID_LABEL, MANAGED_BY_LABEL)
    if is_from_holdfast(sandbox_claim):
        kept += tuple(key for key in labels if not reserved_label_reason(key))
    return {key: labels[key] for key in kept if key in labels}


def merge_pod_metadata(
    base: Mapping[str, Any] | None, sandbox_claim: Mapping[str, Any]
) -> dict[str, dict[str, str]]:
    """Pod metadata with the additions of a SandboxClaim, its UID and its creator."""
    merged = {
        field: {**((base or {}).get(field) or {}), **additional_pod_metadata(sandbox_claim, field)}
        for field in METADATA_FIELDS
    }
    merged["labels"][SANDBOX_CLAIM_UID_LABEL] = sandbox_claim["metadata"]["uid"]
    if creator := (sandbox_claim["metadata"].get("labels") or {}).get(CREATED_BY_LABEL):
        merged["labels"][CREATED_BY_LABEL] = creator
    return {field: entries for field, entries in merged.items() if entries}


def metadata_patch(actual: Mapping[str, Any] | None, desired: Mapping[str, Any]) -> dict[str, Any]:
    """Merge patch between two metadata; empty if they are equal."""
    before, after = (
        {field: (metadata or {}).get(field) or {} for field in METADATA_FIELDS}
        for metadata in (actual, desired)
    )
    return merge_patch(before, after)


def find_invalid_metadata(
    sandbox_claim: Mapping[str, Any],
    domains: Sequence[str] = DEFAULT_LABEL_DOMAINS,
    current: Mapping[str, Any] | None = None,
) -> ConditionUpdate | None:
    """Find the first label or annotation that no SandboxClaim may add, whatever its template is.

    Args:
        sandbox_claim: the SandboxClaim.
        domains: domains of labels that it may add.
        current: metadata that the pod has already: rules that came later do not apply to it.
    """
    for field in METADATA_FIELDS:
        present = (current or {}).get(field) or {}
        for key, value in sorted(additional_pod_metadata(sandbox_claim, field).items()):
            if present.get(key) == value:
                continue
            why = _label_error(key, value, domains) if field == "labels" else _annotation_error(key)
            if why:
                return _invalid_metadata(field, key, why)
    return None


def find_metadata_conflict(
    sandbox_claim: Mapping[str, Any],
    base: Mapping[str, Any],
    policies: Sequence[Mapping[str, Any]],
    current: Mapping[str, Any] | None = None,
) -> ConditionUpdate | None:
    """Find the first addition that conflicts with the template, or that a network policy would select.

    Args:
        sandbox_claim: the SandboxClaim.
        base: pod metadata without the SandboxClaim's.
        policies: network policies that may select pods by an added label.
        current: metadata that the pod has already: policies that came later do not apply to it.
    """
    for field in METADATA_FIELDS:
        fixed = base.get(field) or {}
        for key, value in sorted(additional_pod_metadata(sandbox_claim, field).items()):
            if fixed.get(key, value) != value:
                message = (
                    f'metadata override conflict: {_KINDS[field]} "{key}" is defined in template with value '
                    f'"{fixed[key]}", but claim requests "{value}"'
                )
                return error_condition(message)
    known = {**(base.get("labels") or {}), **((current or {}).get("labels") or {})}
    added = additional_pod_metadata(sandbox_claim, "labels")
    new = {key: value for key, value in added.items() if known.get(key) != value}
    # A label can open a connection that the template denies: network policies select their peers by label.
    for policy in policies:
        matched = find_allowing_label(new, policy, namespace=sandbox_claim["metadata"]["namespace"])
        if matched is not None:
            name = f"{policy['metadata']['namespace']}/{policy['metadata']['name']}"
            why = f"network policy {name} allows connections of pods with the label {matched}"
            return _invalid_metadata("labels", matched, why)
    return None


def error_condition(message: str) -> ConditionUpdate:
    """The Ready condition for an error without a reason of its own."""
    return not_ready_condition(SandboxReason.RECONCILER_ERROR, f"Error seen: {message}")


def _invalid_metadata(field: str, key: str, why: str) -> ConditionUpdate:
    message = f'invalid additionalPodMetadata: failed to validate {_KINDS[field]} "{key}": {why}'
    return not_ready_condition(SandboxClaimReason.INVALID_METADATA, message)


def _label_error(key: str, value: str, domains: Sequence[str]) -> str:
    """Why a label may not be added; empty `domains` allow every domain that is not reserved."""
    if problem := _key_error(key):
        return problem
    if is_router_label(key, value):
        return f'restricted system label value: "{key}"="{value}" is not allowed in AdditionalPodMetadata'
    if problem := _domain_error(key, domains):
        return problem
    if reserved_label_reason(key):
        return f'restricted system domain: "{key}" is not allowed in AdditionalPodMetadata'
    if len(value) > _MAX_VALUE_LENGTH or not _VALUE.fullmatch(value):
        return f'invalid label value: "{value}" does not match allowed pattern: {_VALUE_PATTERN}'
    return ""


def _domain_error(key: str, domains: Sequence[str]) -> str:
    domain, slash, _ = key.rpartition("/")
    if domains and not slash:
        return (
            f"label \"{key}\" must have a domain prefix (e.g. 'sandbox.users.io/my-label') to prevent opting "
            "into unintended policy domains"
        )
    if domains and not is_in_domains(key, domains):
        return f'label domain "{domain}" is not in the allowlist'
    return ""


def _annotation_error(key: str) -> str:
    if problem := _key_error(key):
        return problem
    if reserved_annotation_reason(key):
        return f'restricted system domain: "{key}" is not allowed in AdditionalPodMetadata'
    return ""


def _key_error(key: str) -> str:
    prefix, slash, name = key.rpartition("/")
    if _NAME.fullmatch(name) and (not slash or _PREFIX.fullmatch(prefix)):
        return ""
    return f'invalid label key: "{key}": it is not a qualified name'
