"""Edits of a SandboxClaim that is bound to a sandbox.

Labels and annotations of the SandboxClaim and of its template are applied to the sandbox as they are now,
and so is the failed-pods policy that follows from the TTL. Environment variables, volume claim templates and
the pool were used to create the sandbox: edits of these are ignored, and a condition reports them. An
annotation of the sandbox records what came from the SandboxClaim: without the template, only that is removed
again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from holdfast.api import (
    APPLIED_SANDBOX_CLAIM_ANNOTATION,
    BOUND_SANDBOX_ANNOTATION,
    FAILED_PODS_ANNOTATION,
    LAUNCH_TYPE_LABEL,
    ConditionType,
    HoldfastReason,
)
from holdfast.sandbox.claim.metadata import (
    METADATA_FIELDS,
    additional_pod_metadata,
    find_metadata_conflict,
    merge_pod_metadata,
    metadata_patch,
)
from holdfast.sandbox.from_template import content_hash, template_metadata
from holdfast.sandbox.lifecycle import failed_pods_annotations
from holdfast.sandbox.status import ConditionUpdate

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_IMMUTABLE_FIELDS = ("warmPoolRef", "env", "volumeClaimTemplates")


class SandboxClaimEdits(msgspec.Struct, frozen=True, kw_only=True):
    """Merge patch for the sandbox, the rejection of an invalid edit, and edited fields that are ignored."""

    patch: dict[str, Any] = {}
    rejection: ConditionUpdate | None = None
    ignored_fields: tuple[str, ...] = ()


_STORED_KEYS = {"sets_failed_pods": "final", "field_hashes": "fixed"}


class _AppliedSandboxClaim(msgspec.Struct, frozen=True, omit_defaults=True, rename=_STORED_KEYS):
    """What a sandbox took over from its SandboxClaim; stored as JSON in an annotation.

    Attributes:
        labels: keys of added pod labels.
        annotations: keys of added pod annotations.
        sets_failed_pods: whether the failed-pods policy comes from the SandboxClaim.
        field_hashes: hashes of the fields that cannot change.
    """

    labels: list[str] = []
    annotations: list[str] = []
    sets_failed_pods: bool = False
    field_hashes: dict[str, str] = {}


def applied_sandbox_claim_annotations(
    sandbox_claim: Mapping[str, Any], base: Mapping[str, Any]
) -> dict[str, str]:
    """Annotations that record a SandboxClaim on the sandbox that it binds.

    Args:
        sandbox_claim: the SandboxClaim.
        base: the sandbox's pod metadata without the SandboxClaim's.
    """
    failed_pods = failed_pods_annotations(sandbox_claim)
    applied = _build_applied_sandbox_claim(sandbox_claim, base, sets_failed_pods=bool(failed_pods))
    return {APPLIED_SANDBOX_CLAIM_ANNOTATION: _encode(applied), **failed_pods}


def find_edits(
    sandbox_claim: Mapping[str, Any],
    sandbox: Mapping[str, Any],
    policies: Sequence[Mapping[str, Any]],
    *,
    template: Mapping[str, Any] | None = None,
    is_rejected: bool = False,
) -> SandboxClaimEdits:
    """Compare a SandboxClaim with its bound sandbox.

    Args:
        sandbox_claim: the SandboxClaim as it is now.
        sandbox: its sandbox.
        policies: network policies that may select pods by a label that the SandboxClaim adds.
        template: the sandbox's template, whose current pod metadata applies; None if it is not known.
        is_rejected: whether the metadata of the SandboxClaim is invalid by itself.
    """
    annotations = sandbox["metadata"].get("annotations") or {}
    recorded = _decode(annotations.get(APPLIED_SANDBOX_CLAIM_ANNOTATION, ""))
    # Without a valid record, the current additions count as applied: nothing is removed by a guess.
    applied = recorded or _build_applied_sandbox_claim(sandbox_claim, {}, sets_failed_pods=False)
    actual = sandbox["spec"]["podTemplate"].get("metadata") or {}
    base = _remaining_metadata(actual, applied) if template is None else template_metadata(template)
    rejection = None
    if not is_rejected:
        rejection = find_metadata_conflict(sandbox_claim, base, policies, current=actual)
    is_rejected = is_rejected or rejection is not None
    change = {} if is_rejected else metadata_patch(actual, merge_pod_metadata(base, sandbox_claim))
    annotation_change, sets_failed_pods = _failed_pods_change(
        sandbox_claim, annotations.get(FAILED_PODS_ANNOTATION), applied
    )
    updated = _build_applied_sandbox_claim(sandbox_claim, base, sets_failed_pods=sets_failed_pods)
    if is_rejected:
        updated = msgspec.structs.replace(updated, labels=applied.labels, annotations=applied.annotations)
    # The hashes stay those of the creation, so that an ignored edit is reported until it is reverted.
    updated = msgspec.structs.replace(updated, field_hashes=applied.field_hashes)
    if updated != recorded and (recorded or change or annotation_change):
        annotation_change = {**annotation_change, APPLIED_SANDBOX_CLAIM_ANNOTATION: _encode(updated)}
    # Record and change are one patch: a crash cannot leave labels that no later edit removes.
    patch: dict[str, Any] = {"metadata": {"annotations": annotation_change}} if annotation_change else {}
    if LAUNCH_TYPE_LABEL not in (sandbox["metadata"].get("labels") or {}):
        is_warm = BOUND_SANDBOX_ANNOTATION in (sandbox_claim["metadata"].get("annotations") or {})
        patch.setdefault("metadata", {})["labels"] = {LAUNCH_TYPE_LABEL: "warm" if is_warm else "cold"}
    if change:
        patch["spec"] = {"podTemplate": {"metadata": change}}
    current_hashes = _field_hashes(sandbox_claim)
    ignored = tuple(
        field for field in _IMMUTABLE_FIELDS if applied.field_hashes.get(field) != current_hashes.get(field)
    )
    return SandboxClaimEdits(patch=patch, rejection=rejection, ignored_fields=ignored)


def _remaining_metadata(
    actual: Mapping[str, Any], applied: _AppliedSandboxClaim
) -> dict[str, dict[str, str]]:
    """Pod metadata of a sandbox without what it took over from its SandboxClaim."""
    return {
        field: {
            key: value
            for key, value in (actual.get(field) or {}).items()
            if key not in getattr(applied, field)
        }
        for field in METADATA_FIELDS
    }


def ignored_edits_condition(fields: Sequence[str], sandbox: str) -> ConditionUpdate:
    """Condition of a SandboxClaim with edits that its sandbox cannot take over."""
    message = (
        f"{', '.join(fields)}: changed after sandbox {sandbox} was created; the sandbox is not changed. "
        "Create a new SandboxClaim to use the new values"
    )
    return ConditionUpdate(ConditionType.EDITS_APPLIED, "False", HoldfastReason.EDIT_IGNORED, message)


def _failed_pods_change(
    sandbox_claim: Mapping[str, Any], current: str | None, applied: _AppliedSandboxClaim
) -> tuple[dict[str, str | None], bool]:
    """Change of the failed-pods annotation, and whether its value then comes from the SandboxClaim."""
    desired = failed_pods_annotations(sandbox_claim)
    if desired and current != desired[FAILED_PODS_ANNOTATION]:
        return {**desired}, True
    if not desired and applied.sets_failed_pods:
        return {FAILED_PODS_ANNOTATION: None}, False
    return {}, applied.sets_failed_pods


def _build_applied_sandbox_claim(
    sandbox_claim: Mapping[str, Any], base: Mapping[str, Any], *, sets_failed_pods: bool
) -> _AppliedSandboxClaim:
    """Keys that the base metadata has already do not come from the SandboxClaim, even if it sets them too."""
    labels, annotations = (
        sorted(additional_pod_metadata(sandbox_claim, field).keys() - (base.get(field) or {}).keys())
        for field in METADATA_FIELDS
    )
    return _AppliedSandboxClaim(labels, annotations, sets_failed_pods, _field_hashes(sandbox_claim))


def _field_hashes(sandbox_claim: Mapping[str, Any]) -> dict[str, str]:
    spec = sandbox_claim["spec"]
    return {field: content_hash(spec[field]) for field in _IMMUTABLE_FIELDS if spec.get(field)}


def _encode(applied: _AppliedSandboxClaim) -> str:
    return msgspec.json.encode(applied).decode()


def _decode(text: str) -> _AppliedSandboxClaim | None:
    """Decode the annotation; None if it is missing or invalid."""
    try:
        return msgspec.json.decode(text, type=_AppliedSandboxClaim) if text else None
    except msgspec.DecodeError:
        return None
