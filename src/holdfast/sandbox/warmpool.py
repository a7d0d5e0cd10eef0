"""Reconciliation of one warm pool, without I/O: keep the requested number of unbound sandboxes.

Sandboxes that end are replaced with exponential backoff: a template whose program exits immediately must not
cause a storm of pods. The counter is an annotation of the sandbox and the time is its Finished condition, so
that the backoff survives a restart of the controller.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

import msgspec

from holdfast.api import (
    LAUNCH_TYPE_LABEL,
    REPLACEMENT_COUNT_ANNOTATION,
    TEMPLATE_REF_HASH_LABEL,
    WARM_POOL_LABEL,
    ConditionType,
    SandboxReason,
    parse_timestamp,
)
from holdfast.retry import exponential
from holdfast.sandbox.actions import Action, ActionTarget, Adopt, Create, Decision, Delete, Patch
from holdfast.sandbox.from_template import has_template_spec, template_labels, warm_sandbox
from holdfast.sandbox.lifecycle import number_annotation
from holdfast.sandbox.manifests import is_controlled_by, name_hash, owner_reference
from holdfast.sandbox.status import (
    ConditionUpdate,
    find_condition,
    has_condition,
    is_being_deleted,
    not_ready_condition,
    updated_conditions,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

# A sandbox that is not ready this long after its creation is replaced.
READY_GRACE_SECONDS = 300.0
# One that was ready has at least this long: when the node restarts, all members are not ready for a moment.
_RECOVERY_SECONDS = 60.0
# An unschedulable one is not replaced: a replacement would not find a node either.
_HELD_RECHECK_SECONDS = 60.0
# The pool is observed again between so many creations: its spec may have changed meanwhile.
_MAX_CREATIONS = 300
_BACKOFF = exponential(2.0, cap=300.0, jitter=0.0)
# A sandbox that lived this long was healthy: its end counts as the first.
_BACKOFF_RESET = timedelta(seconds=900)
# Transition times have whole seconds: the sandbox may have ended up to this much later.
_TIMESTAMP_PRECISION = timedelta(seconds=1)


class ObservedWarmPool(msgspec.Struct, frozen=True, kw_only=True):
    """A pool and its sandboxes.

    Attributes:
        pool: the pool.
        template: its template, if it exists.
        now: the current time.
        sandboxes: the sandboxes that the pool controls.
        orphans: sandboxes with the label of the pool that have no controller.
    """

    pool: dict[str, Any]
    template: dict[str, Any] | None
    now: datetime
    sandboxes: tuple[dict[str, Any], ...] = ()
    orphans: tuple[dict[str, Any], ...] = ()


def reconcile_warm_pool(observed: ObservedWarmPool, generate_name: Callable[[], str]) -> Decision:
    """Decide which sandboxes of a pool to create and delete.

    Args:
        observed: the pool and its sandboxes.
        generate_name: returns a new unique name for a sandbox.
    """
    if is_being_deleted(observed.pool):
        return Decision()
    fresh, obsolete = _partition_sandboxes(observed)
    replicas = int(observed.pool["spec"].get("replicas", 1))
    delayed, counts = _delayed_replacements(observed, obsolete, replicas - len(fresh))
    # A finished sandbox exists until its replacement is due: it stores the count and the time of the backoff.
    obsolete = [one for one in obsolete if one["metadata"]["uid"] not in delayed]
    surplus = _deletion_order(fresh)[: max(0, len(fresh) - replicas)]
    leaving_uids = {one["metadata"]["uid"] for one in (*obsolete, *surplus)}
    staying = [one for one in _members(observed) if one["metadata"]["uid"] not in leaving_uids]
    adopted, deleted = _handle_orphans(observed)
    # Deletions come first, because a quota may count sandboxes. A crash before the creations loses the
    # counts.
    # Only if unchanged: a SandboxClaim may adopt the sandbox before the deletion.
    actions: list[Action] = [*_label_corrections(staying), *adopted]
    actions += (Delete.if_unchanged(one) for one in (*deleted, *obsolete, *surplus))
    if observed.template is not None:
        # A sandbox that is being deleted still uses its node: its successor waits for it.
        leaving = sum(map(is_being_deleted, observed.sandboxes))
        missing = max(0, replicas - len(fresh) - len(delayed) - leaving - len(adopted))
        for count in [*counts, *[0] * missing][: min(missing, _MAX_CREATIONS)]:
            manifest = warm_sandbox(
                generate_name(), observed.pool, observed.template, replacement_count=count
            )
            actions.append(Create(manifest=manifest))
    stuck = [left for one in fresh if (left := _seconds_until_stuck(one, observed.now)) is not None]
    return Decision(
        actions=tuple(actions),
        status=_build_status(observed, staying),
        requeue_after=min((*stuck, *delayed.values()), default=None),
    )


def warm_pool_error_status(observed: ObservedWarmPool, message: str) -> dict[str, Any] | None:
    """Status of a pool whose actions the API server rejected; None if the pool is being deleted."""
    if is_being_deleted(observed.pool):
        return None
    return _build_status(
        observed, _members(observed), not_ready_condition(SandboxReason.RECONCILER_ERROR, message)
    )


def count_held(observed: ObservedWarmPool) -> int:
    """Number of unschedulable sandboxes that the pool would replace otherwise."""
    held = filter(_is_unschedulable, _members(observed))
    graces = (_remaining_grace(one, observed.now) for one in held)
    return sum(left is not None and left <= 0 for left in graces)


def needs_replacement(
    sandbox: Mapping[str, Any], pool: Mapping[str, Any], template: Mapping[str, Any] | None, now: datetime
) -> bool:
    """Whether a sandbox has ended, is stuck, or is outdated in a pool with the Recreate strategy."""
    left = _seconds_until_stuck(sandbox, now)
    if has_condition(sandbox, ConditionType.FINISHED) or (left is not None and left <= 0):
        return True
    strategy = (pool["spec"].get("updateStrategy") or {}).get("type", "OnReplenish")
    return strategy == "Recreate" and template is not None and not matches_template(sandbox, template)


def matches_template(sandbox: Mapping[str, Any], template: Mapping[str, Any]) -> bool:
    """Whether a sandbox was created from this template and has its current spec."""
    label = (sandbox["metadata"].get("labels") or {}).get(TEMPLATE_REF_HASH_LABEL)
    expected = template_labels(template["metadata"]["name"])[TEMPLATE_REF_HASH_LABEL]
    return bool(label == expected) and has_template_spec(sandbox, template)


def _partition_sandboxes(observed: ObservedWarmPool) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """The pool's sandboxes to keep, and those to replace."""
    fresh: list[dict[str, Any]] = []
    obsolete: list[dict[str, Any]] = []
    for one in _members(observed):
        # Without a template, nothing could replace them.
        replace = observed.template is not None and needs_replacement(
            one, observed.pool, observed.template, observed.now
        )
        (obsolete if replace else fresh).append(one)
    return fresh, obsolete


def _members(observed: ObservedWarmPool) -> list[dict[str, Any]]:
    """The sandboxes that the pool controls and that are not being deleted."""
    return [
        one
        for one in observed.sandboxes
        if is_controlled_by(one, observed.pool) and not is_being_deleted(one)
    ]


def _delayed_replacements(
    observed: ObservedWarmPool, obsolete: list[dict[str, Any]], missing: int
) -> tuple[dict[str, float], list[int]]:
    """Split finished sandboxes by backoff.

    Returns:
        The seconds left, by UID, of those to replace later; the replacement counts of the others' successors.
    """
    delayed: dict[str, float] = {}
    counts: list[int] = []
    for one in obsolete:
        if not has_condition(one, ConditionType.FINISHED):
            continue
        count, finished = _replacement_count(one, observed.template or {}), _finished_at(one)
        left = 0.0
        if count and finished is not None:
            pause = timedelta(seconds=_BACKOFF.delay(count, 0.0, float))
            left = (finished + _TIMESTAMP_PRECISION + pause - observed.now).total_seconds()
        # Keep at most as many finished sandboxes as the pool lacks.
        if left > 0 and len(delayed) < missing:
            delayed[one["metadata"]["uid"]] = left
        else:
            counts.append(count + 1)
    # Highest first: if the pool creates fewer sandboxes than it deletes, the longest backoff continues.
    return delayed, sorted(counts, reverse=True)


def _replacement_count(sandbox: Mapping[str, Any], template: Mapping[str, Any]) -> int:
    """Number of predecessors that ended in a row; 0 if the sandbox lived long or the template has changed."""
    finished, created = _finished_at(sandbox), sandbox["metadata"].get("creationTimestamp")
    if finished is not None and created and finished - parse_timestamp(created) >= _BACKOFF_RESET:
        return 0
    return (
        number_annotation(sandbox, REPLACEMENT_COUNT_ANNOTATION) if matches_template(sandbox, template) else 0
    )


def _finished_at(sandbox: Mapping[str, Any]) -> datetime | None:
    text = find_condition(sandbox, ConditionType.FINISHED).get("lastTransitionTime")
    return parse_timestamp(text) if text else None


def _seconds_until_stuck(sandbox: Mapping[str, Any], now: datetime) -> float | None:
    """Seconds until a sandbox that is not ready counts as stuck, or is checked again; None if it is ready."""
    left = _remaining_grace(sandbox, now)
    return _HELD_RECHECK_SECONDS if left is not None and left <= 0 and _is_unschedulable(sandbox) else left


def _remaining_grace(sandbox: Mapping[str, Any], now: datetime) -> float | None:
    """Seconds that a sandbox still has to become ready; None if it is ready."""
    created = sandbox["metadata"].get("creationTimestamp")
    if has_condition(sandbox, ConditionType.READY) or not created:
        return None
    left = READY_GRACE_SECONDS - (now - parse_timestamp(created)).total_seconds()
    # Of a sandbox that was never ready, this is the time of its first status.
    changed = find_condition(sandbox, ConditionType.READY).get("lastTransitionTime")
    if not changed:
        return left
    return max(left, _RECOVERY_SECONDS - (now - parse_timestamp(changed)).total_seconds())


def _is_unschedulable(sandbox: Mapping[str, Any]) -> bool:
    scheduled = find_condition(sandbox, ConditionType.POD_SCHEDULED)
    return (scheduled.get("status"), scheduled.get("reason")) == ("False", "Unschedulable")


def _deletion_order(sandboxes: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Surplus sandboxes first: those that are not ready, then the newest."""

    def age(sandbox: Mapping[str, Any]) -> tuple[str, str]:
        metadata = sandbox["metadata"]
        return metadata.get("creationTimestamp", ""), metadata["name"]

    newest_first = sorted(sandboxes, key=age, reverse=True)
    return sorted(newest_first, key=lambda one: has_condition(one, ConditionType.READY))


def _handle_orphans(observed: ObservedWarmPool) -> tuple[list[Adopt], list[dict[str, Any]]]:
    """Adoptions of sandboxes without a controller, and the sandboxes of another template to delete."""
    adopted: list[Adopt] = []
    deleted: list[dict[str, Any]] = []
    template = observed.template
    if template is None:
        return adopted, deleted
    for one in observed.orphans:
        if is_being_deleted(one):
            continue
        if not matches_template(one, template):
            deleted.append(one)
            continue
        metadata = one["metadata"]
        # The version rejects the write if another controller has adopted the sandbox meanwhile.
        change = {
            "resourceVersion": metadata.get("resourceVersion"),
            "ownerReferences": [*(metadata.get("ownerReferences") or ()), owner_reference(observed.pool)],
            "labels": {LAUNCH_TYPE_LABEL: "warm"},
        }
        adopted.append(Adopt(target=ActionTarget.from_object(one), patch={"metadata": change}))
    return adopted, deleted


def _label_corrections(sandboxes: Iterable[dict[str, Any]]) -> list[Patch]:
    """Add the launch type to members that an older controller created without it."""
    patch = {"metadata": {"labels": {LAUNCH_TYPE_LABEL: "warm"}}}
    return [
        Patch.of(one, patch)
        for one in sandboxes
        if LAUNCH_TYPE_LABEL not in (one["metadata"].get("labels") or {})
    ]


def _build_status(
    observed: ObservedWarmPool, members: list[dict[str, Any]], *errors: ConditionUpdate
) -> dict[str, Any]:
    metadata = observed.pool["metadata"]
    conditions = updated_conditions(observed.pool, errors, observed.now)
    counts = {
        "replicas": len(members),
        "readyReplicas": sum(has_condition(one, ConditionType.READY) for one in members),
    }
    return {
        # The published API leaves out a count of zero.
        **{field: count for field, count in counts.items() if count},
        "selector": f"{WARM_POOL_LABEL}={name_hash(metadata['name'])}",
        "observedGeneration": metadata.get("generation", 0),
        # Not an empty list: the published CRD has no conditions, and the status would never be as written.
        **({"conditions": conditions} if conditions else {}),
    }
