"""Reconciliation of one SandboxClaim, without I/O: it adopts a sandbox of its warm pool, or creates one.

A SandboxClaim adopts a warm sandbox with one write that succeeds only at the observed version, so that two
SandboxClaims never get the same sandbox.
"""

from __future__ import annotations

from datetime import datetime  # noqa: TC003 (msgspec reads the types of its fields)
from typing import TYPE_CHECKING, Any

import msgspec

from holdfast.api import (
    BOUND_SANDBOX_ANNOTATION,
    CREATED_BY_LABEL,
    LAUNCH_TYPE_LABEL,
    SANDBOX_CLAIM_UID_LABEL,
    TEMPLATE_FIELDS_HASH_LABEL,
    TEMPLATE_HASH_LABEL,
    TEMPLATE_REF_ANNOTATION,
    WARM_POOL_LABEL,
    ConditionType,
    SandboxClaimReason,
    SandboxReason,
)
from holdfast.sandbox import from_template
from holdfast.sandbox.actions import Action, ActionTarget, Adopt, Create, Decision, Delete, Patch
from holdfast.sandbox.claim import overrides
from holdfast.sandbox.claim.edits import (
    applied_sandbox_claim_annotations,
    find_edits,
    ignored_edits_condition,
)
from holdfast.sandbox.from_template import SAFE_TO_EVICT_ANNOTATION
from holdfast.sandbox.lifecycle import seconds_until_claim_expiry
from holdfast.sandbox.manifests import describe_owner, is_controlled_by, owner_reference
from holdfast.sandbox.status import (
    ConditionUpdate,
    find_condition,
    has_condition,
    is_being_deleted,
    not_ready_condition,
    updated_conditions,
)
from holdfast.sandbox.warmpool import matches_template, needs_replacement

if TYPE_CHECKING:
    from collections.abc import Mapping


class ObservedSandboxClaim(msgspec.Struct, frozen=True, kw_only=True):
    """A SandboxClaim with its pool and template, if they exist, and the sandboxes that concern it.

    Attributes:
        sandbox_claim: the SandboxClaim.
        pool: its warm pool.
        template: the pool's template.
        now: the current time.
        sandboxes: the pool's sandboxes, those it controls, and the one with its name.
        network_policies: policies that may select pods by a label that the SandboxClaim adds.
    """

    sandbox_claim: dict[str, Any]
    pool: dict[str, Any] | None
    template: dict[str, Any] | None
    now: datetime
    sandboxes: tuple[dict[str, Any], ...] = ()
    network_policies: tuple[dict[str, Any], ...] = ()


def reconcile_sandbox_claim(observed: ObservedSandboxClaim) -> Decision:
    """Decide how to bind a SandboxClaim to a sandbox, and how to keep both consistent."""
    if is_being_deleted(observed.sandbox_claim):
        return Decision()
    sandbox = _bound_sandbox(observed)
    expires_in = seconds_until_claim_expiry(observed.sandbox_claim, observed.now)
    if expires_in == 0:
        return _reconcile_expired(observed, sandbox)
    if sandbox is not None:
        decision = _reconcile_bound(observed, sandbox)
    elif name := bound_sandbox_name(observed.sandbox_claim):
        decision = _reconcile_missing_sandbox(observed, name)
    else:
        decision = _reconcile_unbound(observed)
    if decision.requeue_after is None:
        return msgspec.structs.replace(decision, requeue_after=expires_in)
    return decision


def sandbox_claim_error_status(observed: ObservedSandboxClaim, message: str) -> dict[str, Any] | None:
    """Status of a SandboxClaim whose actions the API server rejected.

    It still reports the bound sandbox and whether it has finished: the TTL counts from there.

    Returns:
        The status; None if the SandboxClaim is being deleted.
    """
    if is_being_deleted(observed.sandbox_claim):
        return None
    sandbox = _bound_sandbox(observed)
    if sandbox is None or seconds_until_claim_expiry(observed.sandbox_claim, observed.now) == 0:
        return _not_ready_decision(observed, SandboxReason.RECONCILER_ERROR, message).status
    ready = not_ready_condition(SandboxReason.RECONCILER_ERROR, message)
    return _reconcile_bound(observed, sandbox, ready=ready).status


def bound_sandbox_name(sandbox_claim: Mapping[str, Any]) -> str:
    """Name of the sandbox that a SandboxClaim is bound to, according to its status; empty if none."""
    return str(((sandbox_claim.get("status") or {}).get("sandbox") or {}).get("name") or "")


def _bound_sandbox(observed: ObservedSandboxClaim) -> dict[str, Any] | None:
    # The owner reference binds, not the status: a crash between adoption and status does not lose the
    # sandbox.
    return next((one for one in observed.sandboxes if is_controlled_by(one, observed.sandbox_claim)), None)


def _reconcile_missing_sandbox(observed: ObservedSandboxClaim, name: str) -> Decision:
    """Report the missing sandbox and unbind it, to get another one. A finished SandboxClaim gets none."""
    message = f"sandbox {name} no longer exists"
    decision = _not_ready_decision(observed, SandboxClaimReason.SANDBOX_MISSING, message)
    if find_condition(observed.sandbox_claim, ConditionType.FINISHED):
        return decision
    # With this status, the next reconciliation finds the SandboxClaim unbound and gets another sandbox.
    status = {key: value for key, value in (decision.status or {}).items() if key != "sandbox"}
    return msgspec.structs.replace(decision, status=status, requeue_after=0.0)


def _reconcile_unbound(observed: ObservedSandboxClaim) -> Decision:
    if observed.pool is None:
        name = observed.sandbox_claim["spec"]["warmPoolRef"]["name"]
        message = f"warm pool {name} not found"
        return _not_ready_decision(observed, SandboxClaimReason.WARM_POOL_NOT_FOUND, message)
    if observed.template is None:
        name = observed.pool["spec"]["sandboxTemplateRef"]["name"]
        message = f"template {name} not found"
        return _not_ready_decision(observed, SandboxClaimReason.TEMPLATE_NOT_FOUND, message)
    rejection = overrides.find_rejection(observed.sandbox_claim, observed.template, observed.network_policies)
    if rejection is not None:
        return _not_ready_decision(observed, rejection.reason, rejection.message)
    warm = None
    if not overrides.needs_cold_sandbox(observed.sandbox_claim):
        warm = _pick_warm_sandbox(observed, observed.pool, observed.template)
    if warm is None:
        return _create_cold_sandbox(observed, observed.template)
    name = warm["metadata"]["name"]
    # Adopt first: the annotation never names a sandbox that another SandboxClaim got.
    actions = (
        _adopt_warm_sandbox(observed.sandbox_claim, warm, observed.template),
        _record_sandbox_name(observed.sandbox_claim, name),
    )
    reason, message = SandboxClaimReason.SANDBOX_NOT_READY, f"binding sandbox {name}"
    return _not_ready_decision(observed, reason, message, *actions)


def _create_cold_sandbox(observed: ObservedSandboxClaim, template: Mapping[str, Any]) -> Decision:
    sandbox_claim = observed.sandbox_claim
    # Not a generated name: if the response to a create is lost, a second create conflicts instead of adding a
    # sandbox.
    name = sandbox_claim["metadata"]["name"]
    existing = next((one for one in observed.sandboxes if one["metadata"]["name"] == name), None)
    if existing is not None:
        message = f"sandbox {name} already exists: {describe_owner(existing)}"
        return _not_ready_decision(observed, SandboxClaimReason.ADOPTION_CONFLICT, message)
    labels = {
        **overrides.inherited_labels(sandbox_claim),
        SANDBOX_CLAIM_UID_LABEL: sandbox_claim["metadata"]["uid"],
        LAUNCH_TYPE_LABEL: "cold",
    }
    spec = overrides.cold_sandbox_spec(sandbox_claim, template)
    manifest = from_template.sandbox_manifest(name, sandbox_claim, template, labels, spec)
    manifest["metadata"]["annotations"] |= applied_sandbox_claim_annotations(
        sandbox_claim, from_template.template_metadata(template)
    )
    actions = (Create(manifest=manifest), _record_sandbox_name(sandbox_claim, name))
    reason, message = SandboxClaimReason.SANDBOX_CREATE_PENDING, f"creating sandbox {name}"
    return _not_ready_decision(observed, reason, message, *actions)


def _reconcile_bound(
    observed: ObservedSandboxClaim, sandbox: dict[str, Any], *, ready: ConditionUpdate | None = None
) -> Decision:
    """Copy the sandbox's conditions and apply edits of the SandboxClaim to the sandbox.

    Args:
        observed: the SandboxClaim.
        sandbox: its bound sandbox.
        ready: the Ready condition to report instead of the sandbox's.
    """
    sandbox_claim, name = observed.sandbox_claim, sandbox["metadata"]["name"]
    edits = find_edits(sandbox_claim, sandbox, observed.network_policies)
    conditions = [ready or edits.rejection or _mirror_ready_condition(sandbox)]
    if has_condition(sandbox, ConditionType.FINISHED):
        conditions.append(_mirror_finished_condition(sandbox))
    if edits.ignored_fields:
        conditions.append(ignored_edits_condition(edits.ignored_fields, name))
    actions: list[Action] = []
    if (sandbox_claim["metadata"].get("annotations") or {}).get(BOUND_SANDBOX_ANNOTATION) != name:
        actions.append(_record_sandbox_name(sandbox_claim, name))
    if edits.patch and not is_being_deleted(sandbox):
        actions.append(Patch.of(sandbox, edits.patch))
    reference: dict[str, Any] = {"name": name}
    if ips := (sandbox.get("status") or {}).get("podIPs"):
        reference["podIPs"] = ips
    return Decision(actions=tuple(actions), status=_build_status(observed, conditions, reference))


def _mirror_ready_condition(sandbox: Mapping[str, Any]) -> ConditionUpdate:
    ready = find_condition(sandbox, ConditionType.READY)
    if has_condition(sandbox, ConditionType.READY):
        return ConditionUpdate(ConditionType.READY, "True", ready["reason"], ready.get("message", ""))
    reason = ready.get("reason") or SandboxClaimReason.SANDBOX_NOT_READY
    return not_ready_condition(reason, ready.get("message") or "the sandbox is not ready")


def _mirror_finished_condition(obj: Mapping[str, Any]) -> ConditionUpdate:
    finished = find_condition(obj, ConditionType.FINISHED)
    return ConditionUpdate(ConditionType.FINISHED, "True", finished["reason"], finished.get("message", ""))


def _reconcile_expired(observed: ObservedSandboxClaim, sandbox: dict[str, Any] | None) -> Decision:
    """Report the expiry, then apply the shutdown policy."""
    sandbox_claim, reason = observed.sandbox_claim, SandboxClaimReason.CLAIM_EXPIRED
    decision = _not_ready_decision(observed, reason, "the SandboxClaim has expired")
    # Report first: clients must see why the sandbox disappears, even after a crash between the writes.
    if find_condition(sandbox_claim, ConditionType.READY).get("reason") != reason:
        return msgspec.structs.replace(decision, requeue_after=0.0)
    policy = (sandbox_claim["spec"].get("lifecycle") or {}).get("shutdownPolicy", "Retain")
    actions: tuple[Action, ...] = ()
    if policy != "Retain":
        propagation = "Foreground" if policy == "DeleteForeground" else "Background"
        actions = (Delete.of(sandbox_claim, propagation=propagation),)
    elif sandbox is not None and not is_being_deleted(sandbox):
        actions = (Delete.of(sandbox),)
    return msgspec.structs.replace(decision, actions=actions)


def _pick_warm_sandbox(
    observed: ObservedSandboxClaim, pool: Mapping[str, Any], template: Mapping[str, Any]
) -> dict[str, Any] | None:
    """Pick the oldest ready sandbox of the pool, else the oldest that is still starting.

    A starting sandbox of an outdated template is not used: it may never become ready. Neither is one whose
    pod metadata conflicts with the SandboxClaim, even if the current template allows it.
    """
    free = [
        one
        for one in observed.sandboxes
        if is_controlled_by(one, pool)
        and not is_being_deleted(one)
        and not needs_replacement(one, pool, template, observed.now)
        and (has_condition(one, ConditionType.READY) or matches_template(one, template))
    ]
    for one in sorted(free, key=_adoption_order):
        base = _base_pod_metadata(one, template)
        if not overrides.find_metadata_rejection(observed.sandbox_claim, base, observed.network_policies):
            return one
    return None


def _adoption_order(sandbox: Mapping[str, Any]) -> tuple[bool, str, str]:
    metadata, ready = sandbox["metadata"], has_condition(sandbox, ConditionType.READY)
    return not ready, metadata.get("creationTimestamp", ""), metadata["name"]


_POOL_LABELS = frozenset({WARM_POOL_LABEL, TEMPLATE_HASH_LABEL, TEMPLATE_FIELDS_HASH_LABEL, CREATED_BY_LABEL})


def _base_pod_metadata(warm: Mapping[str, Any], template: Mapping[str, Any]) -> dict[str, Any]:
    """Pod metadata of a warm sandbox without the SandboxClaim's, updated to its template's current metadata.

    A pool does not replace sandboxes when only labels or annotations of the template change. If the pool has
    another template by now, that template's metadata does not apply.
    """
    own = warm["spec"]["podTemplate"].get("metadata") or {}
    source = (warm["metadata"].get("annotations") or {}).get(TEMPLATE_REF_ANNOTATION)
    current = from_template.template_metadata(template) if source == template["metadata"]["name"] else {}
    base = {
        field: {**(own.get(field) or {}), **(current.get(field) or {})} for field in overrides.METADATA_FIELDS
    }
    kept_labels = current.get("labels") or {}
    for key in _POOL_LABELS - kept_labels.keys():
        base["labels"].pop(key, None)
    if SAFE_TO_EVICT_ANNOTATION not in (current.get("annotations") or {}):
        # The pool set it: a waiting sandbox may be evicted, one in use may not.
        base["annotations"].pop(SAFE_TO_EVICT_ANNOTATION, None)
    return base


def _adopt_warm_sandbox(
    sandbox_claim: Mapping[str, Any], warm: dict[str, Any], template: Mapping[str, Any]
) -> Adopt:
    """Move a sandbox from its pool to the SandboxClaim, if it is still at the observed version."""
    base = _base_pod_metadata(warm, template)
    change = overrides.metadata_patch(
        warm["spec"]["podTemplate"].get("metadata"), overrides.merge_pod_metadata(base, sandbox_claim)
    )
    # One write moves the owner, the labels and the record, so that a crash leaves no intermediate state. A
    # merge patch replaces the whole list of owners, and the version rejects all but the first SandboxClaim.
    patch = {
        "metadata": {
            "resourceVersion": warm["metadata"].get("resourceVersion"),
            "ownerReferences": [owner_reference(sandbox_claim)],
            "labels": {
                **overrides.inherited_labels(sandbox_claim),
                **dict.fromkeys(_POOL_LABELS),
                SANDBOX_CLAIM_UID_LABEL: sandbox_claim["metadata"]["uid"],
                LAUNCH_TYPE_LABEL: "warm",
            },
            "annotations": applied_sandbox_claim_annotations(sandbox_claim, base),
        },
        "spec": {"podTemplate": {"metadata": change}},
    }
    return Adopt(target=ActionTarget.from_object(warm), patch=patch)


def _record_sandbox_name(sandbox_claim: Mapping[str, Any], name: str) -> Patch:
    return Patch.of(sandbox_claim, {"metadata": {"annotations": {BOUND_SANDBOX_ANNOTATION: name}}})


def _not_ready_decision(
    observed: ObservedSandboxClaim, reason: str, message: str, *actions: Action
) -> Decision:
    """Report that the SandboxClaim is not ready. Its Finished condition stays: the TTL counts from it."""
    conditions = [not_ready_condition(reason, message)]
    if find_condition(observed.sandbox_claim, ConditionType.FINISHED):
        conditions.append(_mirror_finished_condition(observed.sandbox_claim))
    reference = (observed.sandbox_claim.get("status") or {}).get("sandbox")
    return Decision(actions=actions, status=_build_status(observed, conditions, reference))


def _build_status(
    observed: ObservedSandboxClaim, conditions: list[ConditionUpdate], reference: dict[str, Any] | None
) -> dict[str, Any]:
    status = {"conditions": updated_conditions(observed.sandbox_claim, conditions, observed.now)}
    return status | ({"sandbox": reference} if reference else {})
