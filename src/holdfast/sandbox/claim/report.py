"""Status of a SandboxClaim: conditions that it copies from its sandbox, and those of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from holdfast.api import (
    FIRST_OBSERVED_ANNOTATION,
    FIRST_READY_ANNOTATION,
    ConditionType,
    SandboxClaimReason,
    SandboxReason,
)
from holdfast.sandbox.status import (
    ConditionUpdate,
    find_condition,
    has_condition,
    not_ready_condition,
    updated_conditions,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import datetime

_MISSED = "unknown"


def bound_status(
    sandbox_claim: Mapping[str, Any],
    sandbox: Mapping[str, Any],
    now: datetime,
    *,
    error: ConditionUpdate | None = None,
    extra: Sequence[ConditionUpdate] = (),
) -> dict[str, Any]:
    """Status of a SandboxClaim with a sandbox.

    Args:
        sandbox_claim: the SandboxClaim.
        sandbox: its sandbox.
        now: the current time.
        error: the Ready condition to report instead of the sandbox's.
        extra: conditions of holdfast.
    """
    ready = error or _copied_ready(sandbox)
    conditions = updated_conditions(sandbox_claim, (ready, *extra), now)
    if error is None:
        _copy_transition(conditions, sandbox)
    if finished := find_condition(sandbox, ConditionType.FINISHED):
        conditions.append(dict(finished))
    reference: dict[str, Any] = {"name": sandbox["metadata"]["name"]}
    if ips := (sandbox.get("status") or {}).get("podIPs"):
        reference["podIPs"] = ips
    return {"conditions": _in_order(conditions), "sandbox": reference}


def unbound_status(
    sandbox_claim: Mapping[str, Any],
    ready: ConditionUpdate,
    now: datetime,
    *,
    keeps_sandbox: bool = True,
    keeps_finished: bool = False,
) -> dict[str, Any]:
    """Status of a SandboxClaim without a sandbox, or of an expired one.

    Args:
        sandbox_claim: the SandboxClaim.
        ready: its Ready condition.
        now: the current time.
        keeps_sandbox: whether the reference to a sandbox stays.
        keeps_finished: whether the Finished condition stays, which the TTL counts from.
    """
    conditions = updated_conditions(sandbox_claim, (ready,), now)
    if keeps_finished and (finished := find_condition(sandbox_claim, ConditionType.FINISHED)):
        conditions.append(dict(finished))
    reference = (sandbox_claim.get("status") or {}).get("sandbox")
    status: dict[str, Any] = {"conditions": _in_order(conditions)}
    return status | ({"sandbox": reference} if keeps_sandbox and reference else {})


def first_observed_annotation(sandbox_claim: Mapping[str, Any], now: datetime) -> dict[str, str]:
    """The annotation that records when a controller saw the SandboxClaim first; empty if it is there."""
    return _missing_annotation(sandbox_claim, FIRST_OBSERVED_ANNOTATION, precise_timestamp(now))


def first_ready_annotation(
    sandbox_claim: Mapping[str, Any], status: Mapping[str, Any] | None, now: datetime
) -> dict[str, str]:
    """The annotation that records when the SandboxClaim became ready; empty if it is there, or not ready.

    Args:
        sandbox_claim: the SandboxClaim, with its previous status.
        status: its new status.
        now: the current time.
    """
    if not has_condition({"status": status}, ConditionType.READY):
        return {}
    # If the status was ready before, a controller stopped between the two writes.
    was_ready = has_condition(sandbox_claim, ConditionType.READY)
    return _missing_annotation(
        sandbox_claim, FIRST_READY_ANNOTATION, _MISSED if was_ready else precise_timestamp(now)
    )


def precise_timestamp(moment: datetime) -> str:
    """A UTC time with nanoseconds, as the published annotations have it."""
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{moment.microsecond * 1000:09d}Z"


def _missing_annotation(obj: Mapping[str, Any], key: str, value: str) -> dict[str, str]:
    return {} if key in (obj["metadata"].get("annotations") or {}) else {key: value}


def _copied_ready(sandbox: Mapping[str, Any]) -> ConditionUpdate:
    ready = find_condition(sandbox, ConditionType.READY)
    if not ready:
        return not_ready_condition(SandboxClaimReason.SANDBOX_NOT_READY, "Sandbox is not ready")
    if ready["reason"] == SandboxReason.SANDBOX_EXPIRED:
        message = "Underlying Sandbox resource has expired independently of the Claim."
        return not_ready_condition(SandboxReason.SANDBOX_EXPIRED, message)
    return ConditionUpdate(ConditionType.READY, ready["status"], ready["reason"], ready.get("message", ""))


def _copy_transition(conditions: list[dict[str, Any]], sandbox: Mapping[str, Any]) -> None:
    """Give the Ready condition the transition time of the sandbox's."""
    transition = find_condition(sandbox, ConditionType.READY).get("lastTransitionTime")
    for condition in conditions if transition else ():
        if condition["type"] == ConditionType.READY:
            condition["lastTransitionTime"] = transition


def _in_order(conditions: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted(conditions, key=lambda condition: str(condition["type"]))
