"""Choice of a warm sandbox for a SandboxClaim, and the write that moves it from its pool."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from holdfast.api import (
    BOUND_SANDBOX_ANNOTATION,
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
    SandboxClaimReason,
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
from holdfast.sandbox.status import has_condition, is_being_deleted, not_ready_condition
from holdfast.sandbox.warmpool import matches_template, needs_replacement

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from datetime import datetime

    from holdfast.sandbox.status import ConditionUpdate

_POOL_LABELS = (WARM_POOL_LABEL, TEMPLATE_HASH_LABEL, TEMPLATE_FIELDS_HASH_LABEL, CREATED_BY_LABEL)
_CANDIDATE_LABELS = (WARM_POOL_LABEL, TEMPLATE_REF_HASH_LABEL)


def bound_sandbox_name(sandbox_claim: Mapping[str, Any]) -> str:
    """Name of the sandbox that a SandboxClaim is bound to, according to its status; empty if none."""
    return str(((sandbox_claim.get("status") or {}).get("sandbox") or {}).get("name") or "")


def recorded_sandbox_name(sandbox_claim: Mapping[str, Any]) -> str:
    """Name of the warm sandbox that a SandboxClaim records; older controllers used a label."""
    fields = (sandbox_claim["metadata"].get(field) or {} for field in ("annotations", "labels"))
    return next((str(name) for entries in fields if (name := entries.get(BOUND_SANDBOX_ANNOTATION))), "")


def warm_candidates(
    sandboxes: Iterable[dict[str, Any]],
    pool: Mapping[str, Any],
    template: Mapping[str, Any],
    now: datetime,
) -> list[dict[str, Any]]:
    """The sandboxes of a pool that a SandboxClaim may adopt, the best one first.

    A sandbox that has ended is not used, nor a starting one of an outdated template: it may never become
    ready. The node with the most waiting sandboxes is first, so that the others stay spread over the nodes.
    The garbage collector deletes those of a pool that is being deleted, also right after their adoption.
    """
    free = [
        one
        for one in sandboxes
        if not is_being_deleted(pool)
        and is_controlled_by(one, pool)
        and not is_being_deleted(one)
        and not _missing_label(one)
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


def adoption_conflict(
    sandbox_claim: Mapping[str, Any],
    name: str,
    *,
    current: Mapping[str, Any],
    sandbox: Mapping[str, Any] | None,
    pool: Mapping[str, Any] | None,
) -> ConditionUpdate | None:
    """The Ready condition of a SandboxClaim that lost the race for a sandbox.

    None if the SandboxClaim does not record the sandbox: it was edited, and nothing is lost.

    Args:
        sandbox_claim: the SandboxClaim as it was when the adoption was decided.
        name: name of the sandbox.
        current: the SandboxClaim as it is now.
        sandbox: the sandbox as it is now; None if it is gone.
        pool: the pool of the SandboxClaim.
    """
    detail = _describe_conflict(sandbox_claim, name, current, sandbox, pool)
    if not detail:
        return None
    message = f"adoption write conflict: {detail}; the next pass retries from a converged view"
    return not_ready_condition(SandboxClaimReason.ADOPTION_CONFLICT, message)


def _describe_conflict(
    sandbox_claim: Mapping[str, Any],
    name: str,
    current: Mapping[str, Any],
    sandbox: Mapping[str, Any] | None,
    pool: Mapping[str, Any] | None,
) -> str:
    claim, other = sandbox_claim["metadata"]["name"], recorded_sandbox_name(current)
    if current["metadata"]["uid"] != sandbox_claim["metadata"]["uid"]:
        return f"claim {claim} was deleted and recreated during adoption"
    if other != name:
        return f"claim {claim} already assigned sandbox {other}" if other else ""
    if sandbox is None or is_being_deleted(sandbox):
        return f"sandbox {name} deleted before adoption completed"
    is_ours = is_controlled_by(sandbox, current)
    if not is_ours and (pool is None or not is_controlled_by(sandbox, pool)):
        return f"sandbox {name} is no longer pool-owned and not controlled by claim {claim}"
    if not is_ours and (label := _missing_label(sandbox)):
        return f"sandbox {name} is no longer adoptable by claim {claim}: it has no label {label}"
    return f"completing adoption of {name} for claim {claim} (conflicting concurrent write)"


def _missing_label(sandbox: Mapping[str, Any]) -> str:
    """The first label that a waiting sandbox has and this one has not; empty if it has all."""
    labels = sandbox["metadata"].get("labels") or {}
    return next((label for label in _CANDIDATE_LABELS if label not in labels), "")
