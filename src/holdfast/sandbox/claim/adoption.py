"""Choice of a warm sandbox for a SandboxClaim, and the write that moves it from its pool."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from holdfast.api import (
    CREATED_BY_LABEL,
    LAUNCH_TYPE_LABEL,
    SANDBOX_CLAIM_UID_LABEL,
    TEMPLATE_FIELDS_HASH_LABEL,
    TEMPLATE_HASH_LABEL,
    TEMPLATE_REF_ANNOTATION,
    TEMPLATE_REF_HASH_LABEL,
    TRACE_CONTEXT_ANNOTATION,
    WARM_POOL_LABEL,
    ConditionType,
)
from holdfast.sandbox import from_template
from holdfast.sandbox.actions import ActionTarget, Adopt
from holdfast.sandbox.claim.edits import applied_sandbox_claim_annotations
from holdfast.sandbox.claim.metadata import (
    METADATA_FIELDS,
    find_metadata_conflict,
    inherited_labels,
    merge_pod_metadata,
    metadata_patch,
)
from holdfast.sandbox.from_template import SAFE_TO_EVICT_ANNOTATION
from holdfast.sandbox.manifests import is_controlled_by, owner_reference
from holdfast.sandbox.status import has_condition, is_being_deleted
from holdfast.sandbox.warmpool import matches_template, needs_replacement

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from datetime import datetime

_POOL_LABELS = (WARM_POOL_LABEL, TEMPLATE_HASH_LABEL, TEMPLATE_FIELDS_HASH_LABEL, CREATED_BY_LABEL)


def warm_candidates(
    sandboxes: Iterable[dict[str, Any]],
    pool: Mapping[str, Any],
    template: Mapping[str, Any],
    now: datetime,
) -> list[dict[str, Any]]:
    """The sandboxes of a pool that a SandboxClaim may adopt, the best one first.

    A sandbox that has ended is not used, nor a starting one of an outdated template: it may never become
    ready. The node with the most waiting sandboxes is first, so that the others stay spread over the nodes.
    """
    free = [
        one
        for one in sandboxes
        if is_controlled_by(one, pool)
        and not is_being_deleted(one)
        and {WARM_POOL_LABEL, TEMPLATE_REF_HASH_LABEL} <= (one["metadata"].get("labels") or {}).keys()
        and not needs_replacement(one, pool, template, now)
        and (has_condition(one, ConditionType.READY) or matches_template(one, template))
    ]
    waiting = Counter(_node(one) for one in free)
    return sorted(free, key=lambda one: _choice_order(one, waiting))


def pick_usable(candidates: Sequence[dict[str, Any]]) -> dict[str, Any] | None:
    """The first ready candidate, else the first whose pod has an IP address."""
    ready = (one for one in candidates if has_condition(one, ConditionType.READY))
    started = (one for one in candidates if (one.get("status") or {}).get("podIPs"))
    return next(ready, None) or next(started, None)


def has_conflict(
    sandbox_claim: Mapping[str, Any],
    warm: Mapping[str, Any],
    template: Mapping[str, Any],
    policies: Sequence[Mapping[str, Any]],
) -> bool:
    """Whether the metadata of a SandboxClaim conflicts with that of a sandbox of another template."""
    base = _base_pod_metadata(warm, template)
    return find_metadata_conflict(sandbox_claim, base, policies) is not None


def _node(sandbox: Mapping[str, Any]) -> str:
    return str((sandbox.get("status") or {}).get("nodeName") or "")


def _choice_order(sandbox: Mapping[str, Any], waiting: Mapping[str, int]) -> tuple[bool, int, str, str, str]:
    node, metadata = _node(sandbox), sandbox["metadata"]
    return not node, -waiting[node], node, metadata.get("creationTimestamp", ""), metadata["name"]


def _base_pod_metadata(warm: Mapping[str, Any], template: Mapping[str, Any]) -> dict[str, Any]:
    """Pod metadata of a warm sandbox without the SandboxClaim's: that of its template as it is now.

    If the pool has another template by now, that template's metadata does not apply.
    """
    source = (warm["metadata"].get("annotations") or {}).get(TEMPLATE_REF_ANNOTATION)
    if source == template["metadata"]["name"]:
        return from_template.template_metadata(template)
    own = warm["spec"]["podTemplate"].get("metadata") or {}
    base = {field: dict(own.get(field) or {}) for field in METADATA_FIELDS}
    for key in _POOL_LABELS:
        base["labels"].pop(key, None)
    # The pool set it: a waiting sandbox may be evicted, one in use may not.
    if base["annotations"].get(SAFE_TO_EVICT_ANNOTATION) == "true":
        del base["annotations"][SAFE_TO_EVICT_ANNOTATION]
    return base


def adopt_warm_sandbox(
    sandbox_claim: Mapping[str, Any], warm: dict[str, Any], template: Mapping[str, Any]
) -> Adopt:
    """Move a sandbox from its pool to the SandboxClaim, if it is still at the observed version."""
    base = _base_pod_metadata(warm, template)
    change = metadata_patch(
        warm["spec"]["podTemplate"].get("metadata"), merge_pod_metadata(base, sandbox_claim)
    )
    # One write moves the owner, the labels and the record, so that a crash leaves no intermediate state. A
    # merge patch replaces the whole list of owners, and the version rejects all but the first SandboxClaim.
    patch = {
        "metadata": {
            "resourceVersion": warm["metadata"].get("resourceVersion"),
            "ownerReferences": [owner_reference(sandbox_claim)],
            "labels": {
                **dict.fromkeys(_POOL_LABELS),
                **inherited_labels(sandbox_claim),
                SANDBOX_CLAIM_UID_LABEL: sandbox_claim["metadata"]["uid"],
                LAUNCH_TYPE_LABEL: "warm",
            },
            "annotations": {
                **applied_sandbox_claim_annotations(sandbox_claim, base),
                **trace_context(sandbox_claim),
            },
        },
        "spec": {"podTemplate": {"metadata": change}},
    }
    return Adopt(target=ActionTarget.from_object(warm), patch=patch)


def trace_context(sandbox_claim: Mapping[str, Any]) -> dict[str, str]:
    """The trace context that the sandbox of a SandboxClaim continues."""
    value = (sandbox_claim["metadata"].get("annotations") or {}).get(TRACE_CONTEXT_ANNOTATION)
    return {} if value is None else {TRACE_CONTEXT_ANNOTATION: value}
