"""Reconciliation of one SandboxClaim, without I/O: it adopts a sandbox of its warm pool, or creates one.

A SandboxClaim adopts a warm sandbox with one write that succeeds only at the observed version, so that two
SandboxClaims never get the same sandbox. Before that, it records the name of the sandbox on itself, so that
another controller can complete the adoption.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

import msgspec

from holdfast.api import (
    BOUND_SANDBOX_ANNOTATION,
    LAUNCH_TYPE_LABEL,
    SANDBOX_CLAIM_UID_LABEL,
    TEMPLATE_REF_ANNOTATION,
    ConditionType,
    SandboxClaimReason,
    parse_timestamp,
)
from holdfast.sandbox import from_template
from holdfast.sandbox.actions import Action, Create, Decision, Delete, Patch
from holdfast.sandbox.claim import adoption, overrides
from holdfast.sandbox.claim.adoption import bound_sandbox_name, recorded_sandbox_name
from holdfast.sandbox.claim.edits import (
    applied_sandbox_claim_annotations,
    find_edits,
    ignored_edits_condition,
)
from holdfast.sandbox.claim.metadata import (
    error_condition,
    find_invalid_metadata,
    has_additional_metadata,
    inherited_labels,
    is_from_holdfast,
)
from holdfast.sandbox.claim.report import (
    bound_status,
    first_observed_annotation,
    first_ready_annotation,
    unbound_status,
)
from holdfast.sandbox.lifecycle import seconds_until_claim_expiry
from holdfast.sandbox.manifests import is_controlled_by
from holdfast.sandbox.network_policy import policy_name
from holdfast.sandbox.status import find_condition, is_being_deleted, not_ready_condition
from holdfast.sandbox.validation import DEFAULT_LABEL_DOMAINS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from holdfast.sandbox.status import ConditionUpdate

# How long a SandboxClaim waits for the IP address of a warm sandbox before it gets a new one.
WARM_START_SECONDS = 2.0
_WARM_START_REQUEUE = 0.5
# A missing pool or template wakes its SandboxClaims when it is created; this is for events that were missed.
_MISSING_REQUEUE = 60.0


class ObservedSandboxClaim(msgspec.Struct, frozen=True, kw_only=True):
    """A SandboxClaim with its pool and template, if they exist, and the sandboxes that concern it.

    Attributes:
        sandbox_claim: the SandboxClaim.
        pool: its warm pool.
        template: the pool's template.
        now: the current time.
        sandboxes: the pool's sandboxes, those it controls, and those with its name or with a name it records.
        network_policies: policies that may select pods by a label that the SandboxClaim adds.
        own_policies: network policies that the SandboxClaim controls; older controllers created one.
        label_domains: domains of labels that SandboxClaims may add to pods.
    """

    sandbox_claim: dict[str, Any]
    pool: dict[str, Any] | None
    template: dict[str, Any] | None
    now: datetime
    sandboxes: tuple[dict[str, Any], ...] = ()
    network_policies: tuple[dict[str, Any], ...] = ()
    own_policies: tuple[dict[str, Any], ...] = ()
    label_domains: tuple[str, ...] = DEFAULT_LABEL_DOMAINS


def reconcile_sandbox_claim(observed: ObservedSandboxClaim) -> Decision:
    """Decide how to bind a SandboxClaim to a sandbox, and how to keep both consistent."""
    if is_being_deleted(observed.sandbox_claim):
        return Decision()
    sandbox = _bound_sandbox(observed)
    expires_in = seconds_until_claim_expiry(observed.sandbox_claim, observed.now)
    if expires_in == 0:
        decision = _reconcile_expired(observed, sandbox)
    else:
        decision = _reconcile_live(observed, sandbox)
        waits = [wait for wait in (decision.requeue_after, expires_in) if wait is not None]
        decision = msgspec.structs.replace(decision, requeue_after=min(waits, default=None))
    return _with_times(observed, _without_old_policy(observed, decision))


def _without_old_policy(observed: ObservedSandboxClaim, decision: Decision) -> Decision:
    """Delete the network policy that older controllers created: that of the template replaces it."""
    name = policy_name(observed.sandbox_claim["metadata"]["name"])
    old = [one for one in observed.own_policies if one["metadata"]["name"] == name]
    deletions = tuple(Delete.of(one) for one in old if not is_being_deleted(one))
    return msgspec.structs.replace(decision, actions=(*decision.actions, *deletions))


def sandbox_claim_error_status(
    observed: ObservedSandboxClaim, ready: ConditionUpdate
) -> dict[str, Any] | None:
    """Status of a SandboxClaim whose actions the API server rejected.

    It still reports the bound sandbox and whether it has finished: the TTL counts from there.

    Args:
        observed: the SandboxClaim.
        ready: the Ready condition that tells the error.

    Returns:
        The status; None if the SandboxClaim is being deleted.
    """
    sandbox_claim, now = observed.sandbox_claim, observed.now
    if is_being_deleted(sandbox_claim):
        return None
    sandbox, is_expired = _bound_sandbox(observed), seconds_until_claim_expiry(sandbox_claim, now) == 0
    if sandbox is None or is_expired:
        return unbound_status(sandbox_claim, ready, now, keeps_finished=is_expired)
    return bound_status(sandbox_claim, sandbox, now, error=ready)


def creation_conflict(observed: ObservedSandboxClaim) -> dict[str, Any] | None:
    """Status of an unbound SandboxClaim whose sandbox exists already: the cache does not have it yet."""
    message = "Sandbox already created; waiting for cache to converge"
    ready = not_ready_condition(SandboxClaimReason.SANDBOX_CREATE_PENDING, message)
    is_bound = bound_sandbox_name(observed.sandbox_claim) or _bound_sandbox(observed) is not None
    return None if is_bound else sandbox_claim_error_status(observed, ready)


def _with_times(observed: ObservedSandboxClaim, decision: Decision) -> Decision:
    """Record the first observation before all other writes, and the first readiness after the status."""
    sandbox_claim, actions = observed.sandbox_claim, decision.actions
    if first := first_observed_annotation(sandbox_claim, observed.now):
        patch: dict[str, Any] = {"metadata": {"annotations": first}}
        if (
            actions
            and isinstance(actions[0], Patch)
            and actions[0].target.uid == sandbox_claim["metadata"]["uid"]
        ):
            metadata = actions[0].patch["metadata"]
            patch = {"metadata": {**metadata, "annotations": {**metadata["annotations"], **first}}}
            actions = actions[1:]
        actions = (Patch.of(sandbox_claim, patch), *actions)
    after: tuple[Action, ...] = ()
    if ready := first_ready_annotation(sandbox_claim, decision.status, observed.now):
        after = (Patch.of(sandbox_claim, {"metadata": {"annotations": ready}}),)
    return msgspec.structs.replace(decision, actions=actions, after_status=after)


def _bound_sandbox(observed: ObservedSandboxClaim) -> dict[str, Any] | None:
    # The owner reference binds, not the status: a crash between adoption and status does not lose the
    # sandbox. The status decides between several.
    claim = observed.sandbox_claim
    owned = {one["metadata"]["name"]: one for one in observed.sandboxes if is_controlled_by(one, claim)}
    names = (bound_sandbox_name(claim), recorded_sandbox_name(claim), claim["metadata"]["name"])
    return next((owned[name] for name in (*names, *owned) if name in owned), None)


def _find_sandbox(observed: ObservedSandboxClaim, name: str) -> dict[str, Any] | None:
    return next((one for one in observed.sandboxes if one["metadata"]["name"] == name), None)


def _reconcile_live(observed: ObservedSandboxClaim, sandbox: dict[str, Any] | None) -> Decision:
    sandbox_claim = observed.sandbox_claim
    current = None if sandbox is None else sandbox["spec"]["podTemplate"].get("metadata")
    invalid = find_invalid_metadata(sandbox_claim, observed.label_domains, current)
    if sandbox is not None:
        return _reconcile_bound(observed, sandbox, invalid)
    if invalid is not None:
        return _unbound_decision(observed, invalid)
    if bound_sandbox_name(sandbox_claim):
        # With this status, the next reconciliation finds the SandboxClaim unbound and gets another sandbox.
        missing = not_ready_condition(SandboxClaimReason.SANDBOX_MISSING, "Sandbox does not exist")
        status = unbound_status(sandbox_claim, missing, observed.now, keeps_sandbox=False)
        return Decision(status=status, requeue_after=0.0)
    return _reconcile_unbound(observed)


def _unbound_decision(observed: ObservedSandboxClaim, ready: ConditionUpdate) -> Decision:
    return Decision(status=unbound_status(observed.sandbox_claim, ready, observed.now))


def _reconcile_unbound(observed: ObservedSandboxClaim) -> Decision:
    sandbox_claim, now = observed.sandbox_claim, observed.now
    template, recorded = observed.template, _find_sandbox(observed, recorded_sandbox_name(sandbox_claim))
    rejection = _name_rejection(observed)
    if observed.pool is None or template is None:
        status = unbound_status(sandbox_claim, rejection or _missing_condition(observed), now)
        return Decision(status=status, requeue_after=None if rejection else _MISSING_REQUEUE)
    if recorded is not None and is_controlled_by(recorded, observed.pool) and not is_being_deleted(recorded):
        return _adopt(observed, recorded, template)
    rejection = rejection or overrides.find_rejection(sandbox_claim, template, observed.network_policies)
    if rejection is not None:
        return _unbound_decision(observed, rejection)
    if not overrides.needs_cold_sandbox(sandbox_claim):
        candidates = [
            one
            for one in adoption.warm_candidates(observed.sandboxes, observed.pool, template, now)
            if not adoption.has_conflict(sandbox_claim, one, template, observed.network_policies)
        ]
        if warm := adoption.pick_usable(candidates):
            return _adopt(observed, warm, template)
        if candidates and _seconds_since_creation(sandbox_claim, now) < WARM_START_SECONDS:
            return Decision(requeue_after=_WARM_START_REQUEUE)
    return _create_cold_sandbox(observed, template)


def _name_rejection(observed: ObservedSandboxClaim) -> ConditionUpdate | None:
    """The error of a SandboxClaim whose name another sandbox has."""
    name = observed.sandbox_claim["metadata"]["name"]
    if _find_sandbox(observed, name) is None:
        return None
    return error_condition(
        f'sandbox "{name}" is not controlled by claim "{name}". Please use a different claim name or delete '
        "the sandbox manually"
    )


def _missing_condition(observed: ObservedSandboxClaim, prefix: str = "") -> ConditionUpdate:
    if observed.pool is None:
        name = observed.sandbox_claim["spec"]["warmPoolRef"]["name"]
        return not_ready_condition(
            SandboxClaimReason.WARM_POOL_NOT_FOUND, f'SandboxWarmPool "{name}" not found'
        )
    name = observed.pool["spec"]["sandboxTemplateRef"]["name"]
    return not_ready_condition(
        SandboxClaimReason.TEMPLATE_NOT_FOUND, f'{prefix}SandboxTemplate "{name}" not found'
    )


def _seconds_since_creation(obj: Mapping[str, Any], now: datetime) -> float:
    created = obj["metadata"].get("creationTimestamp")
    return (now - parse_timestamp(created)) / timedelta(seconds=1) if created else WARM_START_SECONDS


def _adopt(observed: ObservedSandboxClaim, warm: dict[str, Any], template: Mapping[str, Any]) -> Decision:
    """Record the sandbox on the SandboxClaim, then adopt it. The next reconciliation reports both at once."""
    name = warm["metadata"]["name"]
    record = _record_sandbox_name(observed.sandbox_claim, name)
    adopt = adoption.adopt_warm_sandbox(observed.sandbox_claim, warm, template)
    return Decision(actions=(*record, adopt))


def _record_sandbox_name(sandbox_claim: Mapping[str, Any], name: str | None) -> tuple[Action, ...]:
    """Write or remove the name of the warm sandbox, if the SandboxClaim is still at the observed version."""
    metadata = sandbox_claim["metadata"]
    has_label = BOUND_SANDBOX_ANNOTATION in (metadata.get("labels") or {})
    if (metadata.get("annotations") or {}).get(BOUND_SANDBOX_ANNOTATION) == name and not has_label:
        return ()
    change: dict[str, Any] = {
        "resourceVersion": metadata.get("resourceVersion"),
        "annotations": {BOUND_SANDBOX_ANNOTATION: name},
    }
    if has_label:
        change["labels"] = {BOUND_SANDBOX_ANNOTATION: None}
    return (Patch.of(sandbox_claim, {"metadata": change}),)


def _create_cold_sandbox(observed: ObservedSandboxClaim, template: Mapping[str, Any]) -> Decision:
    sandbox_claim = observed.sandbox_claim
    # Not a generated name: if the response to a create is lost, a second create conflicts instead of adding a
    # sandbox.
    name = sandbox_claim["metadata"]["name"]
    labels = {
        **inherited_labels(sandbox_claim),
        SANDBOX_CLAIM_UID_LABEL: sandbox_claim["metadata"]["uid"],
        LAUNCH_TYPE_LABEL: "cold",
    }
    spec = overrides.cold_sandbox_spec(sandbox_claim, template)
    manifest = from_template.sandbox_manifest(name, sandbox_claim, template, labels, spec)
    manifest["metadata"]["annotations"] |= {
        **applied_sandbox_claim_annotations(sandbox_claim, from_template.template_metadata(template)),
        **adoption.trace_context(sandbox_claim),
    }
    forget = _record_sandbox_name(sandbox_claim, None)
    # No status: the next reconciliation reports the new sandbox.
    return Decision(actions=(*forget, Create(manifest=manifest)))


def _reconcile_bound(
    observed: ObservedSandboxClaim, sandbox: dict[str, Any], invalid: ConditionUpdate | None
) -> Decision:
    """Copy the sandbox's conditions and apply edits of the SandboxClaim and of the template to the sandbox.

    Args:
        observed: the SandboxClaim.
        sandbox: its bound sandbox.
        invalid: why the metadata of the SandboxClaim cannot be applied.
    """
    sandbox_claim, name = observed.sandbox_claim, sandbox["metadata"]["name"]
    error = invalid
    if observed.template is None and error is None and _requires_template(sandbox_claim):
        error = _missing_condition(observed, "failed to get template for metadata propagation: ")
    edits = find_edits(
        sandbox_claim,
        sandbox,
        observed.network_policies,
        template=_source_template(observed, sandbox),
        is_rejected=error is not None,
    )
    extra = [ignored_edits_condition(edits.ignored_fields, name)] if edits.ignored_fields else []
    actions: list[Action] = []
    if edits.patch and not is_being_deleted(sandbox):
        actions.append(Patch.of(sandbox, edits.patch))
    status = bound_status(sandbox_claim, sandbox, observed.now, error=error or edits.rejection, extra=extra)
    return Decision(actions=tuple(actions), status=status)


def _requires_template(sandbox_claim: Mapping[str, Any]) -> bool:
    """Whether a bound SandboxClaim reports that its template is missing.

    Sandboxes that users of holdfast's API have bound stay ready without their pool.
    """
    return has_additional_metadata(sandbox_claim) and not is_from_holdfast(sandbox_claim)


def _source_template(observed: ObservedSandboxClaim, sandbox: Mapping[str, Any]) -> dict[str, Any] | None:
    """The template that a sandbox was created from; None if the pool has another one by now."""
    source = (sandbox["metadata"].get("annotations") or {}).get(TEMPLATE_REF_ANNOTATION)
    template = observed.template
    return template if template is not None and template["metadata"]["name"] == source else None


def _reconcile_expired(observed: ObservedSandboxClaim, sandbox: dict[str, Any] | None) -> Decision:
    """Report the expiry, then apply the shutdown policy."""
    sandbox_claim, reason = observed.sandbox_claim, SandboxClaimReason.CLAIM_EXPIRED
    name, message = bound_sandbox_name(sandbox_claim), "Claim expired. Sandbox cleanup initiated."
    is_foreign = sandbox is None and bool(name) and _find_sandbox(observed, name) is not None
    if is_foreign:
        claim = sandbox_claim["metadata"]["name"]
        message = (
            f'Claim expired. sandbox not owned by this claim: sandbox "{name}" is not owned by claim '
            f'"{claim}"; deletion skipped.'
        )
    status = unbound_status(
        sandbox_claim,
        not_ready_condition(reason, message),
        observed.now,
        keeps_sandbox=sandbox is not None or is_foreign,
        keeps_finished=True,
    )
    # Report first: clients must see why the sandbox disappears, even after a crash between the writes.
    if find_condition(sandbox_claim, ConditionType.READY).get("reason") != reason:
        return Decision(status=status, requeue_after=0.0)
    policy = (sandbox_claim["spec"].get("lifecycle") or {}).get("shutdownPolicy", "Retain")
    actions: tuple[Action, ...] = ()
    if policy != "Retain":
        propagation = "Foreground" if policy == "DeleteForeground" else None
        actions = (Delete.of(sandbox_claim, propagation=propagation),)
    elif sandbox is not None and not is_being_deleted(sandbox):
        actions = (Delete.of(sandbox),)
    return Decision(actions=actions, status=status)
