"""Conditions of a Sandbox, with the statuses, reasons and messages of the published API.

Clients compare them, so they never contain details. What holdfast knows beyond them is in a condition of its
own, `holdfast.dev/Explanation`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from holdfast.api import ConditionType, SandboxReason
from holdfast.sandbox.status import (
    ConditionUpdate,
    find_condition,
    has_condition,
    not_ready_condition,
    pod_ips,
    pod_phase,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from holdfast.sandbox.status import ConditionStatus


class SandboxFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What the conditions of a sandbox that has not expired depend on.

    Attributes:
        is_suspend_requested: whether the spec requests the suspension.
        pod: the pod that the sandbox owns; None if it owns none or several.
        owned_pods: how many pods the sandbox owns.
        has_foreign_pod: whether a pod that is not the sandbox's has the name of its pod.
        recreates_pod: whether a failed pod is recreated, so that its end is not the end of the sandbox.
        errors: errors with the PVCs, the pod and the Service.
        has_pod_error: whether one of the errors is about the pod.
        invalid: why the API server will never accept one of the objects; empty if it does.
        requires_service: whether the sandbox needs its Service to be ready.
        has_service: whether the sandbox owns its Service.
    """

    is_suspend_requested: bool = False
    pod: dict[str, Any] | None = None
    owned_pods: int = 0
    has_foreign_pod: bool = False
    recreates_pod: bool = False
    errors: tuple[str, ...] = ()
    has_pod_error: bool = False
    invalid: str = ""
    requires_service: bool = False
    has_service: bool = False


def sandbox_conditions(facts: SandboxFacts) -> Iterator[ConditionUpdate]:
    """Yield the published conditions of a sandbox that has not expired."""
    yield suspended_condition(facts)
    finished = _finished_condition(facts)
    if finished is not None:
        yield finished
    scheduled = _pod_scheduled_condition(facts)
    if scheduled is not None:
        yield scheduled
    yield _ready_condition(facts)


def expired_condition() -> ConditionUpdate:
    """The Ready condition of an expired sandbox."""
    return not_ready_condition(SandboxReason.SANDBOX_EXPIRED, "Sandbox has expired")


def suspended_condition(facts: SandboxFacts) -> ConditionUpdate:
    """The Suspended condition."""
    status: ConditionStatus = "False"
    reason, message = SandboxReason.POD_TERMINATING, "Pod is terminating. Sandbox is suspending"
    if not facts.is_suspend_requested:
        reason, message = SandboxReason.NOT_SUSPENDED, "Sandbox is not suspended"
    elif facts.pod is None and facts.has_pod_error:
        status, reason = "Unknown", SandboxReason.POD_STATE_UNKNOWN
        message = "Pod state is unknown. Sandbox suspension cannot be confirmed"
    elif facts.pod is None and not facts.has_foreign_pod:
        status, reason = "True", SandboxReason.POD_TERMINATED
        message = "Pod has been terminated. Sandbox is suspended"
    elif facts.pod is None:
        reason = SandboxReason.POD_NOT_OWNED
        message = "Refused to delete pod because it is not owned by this sandbox"
    return ConditionUpdate(ConditionType.SUSPENDED, status, reason, message)


def _ready_condition(facts: SandboxFacts) -> ConditionUpdate:
    if facts.owned_pods > 1:
        message = (
            f"multiple Pods ({facts.owned_pods}) are controlled by this Sandbox; "
            "refusing to choose or create a Pod"
        )
        return not_ready_condition(SandboxReason.MULTIPLE_PODS, message)
    if facts.invalid:
        return not_ready_condition(SandboxReason.INVALID_CONFIGURATION, facts.invalid)
    if facts.errors:
        return not_ready_condition(SandboxReason.RECONCILER_ERROR, "Error seen: " + "\n".join(facts.errors))
    if facts.is_suspend_requested:
        has_pod = facts.pod is not None or facts.has_foreign_pod
        message = "Sandbox is suspending" if has_pod else "Sandbox is suspended"
        return not_ready_condition(SandboxReason.SANDBOX_SUSPENDED, message)
    if facts.pod is not None and (end := _end_of_pod(facts.pod, recreates=facts.recreates_pod)) is not None:
        return not_ready_condition(*end)
    return _dependencies_condition(facts)


def _dependencies_condition(facts: SandboxFacts) -> ConditionUpdate:
    message, is_ready = _describe_pod(facts.pod)
    if facts.requires_service:
        message += "; Service Exists" if facts.has_service else "; Service does not exist"
        is_ready = is_ready and facts.has_service
    if is_ready:
        return ConditionUpdate(ConditionType.READY, "True", SandboxReason.DEPENDENCIES_READY, message)
    return not_ready_condition(SandboxReason.DEPENDENCIES_NOT_READY, message)


def _describe_pod(pod: dict[str, Any] | None) -> tuple[str, bool]:
    """The published words about a pod, and whether it is ready."""
    if pod is None:
        return "Pod does not exist", False
    if pod_phase(pod) != "Running":
        return f"Pod exists with phase: {pod_phase(pod)}", False
    if not has_condition(pod, "Ready"):
        return "Pod is Running but not Ready", False
    # A deletion timestamp plays no part in the published API: a terminating pod may still be ready.
    return ("Pod is Ready", True) if pod_ips(pod) else ("Pod is Ready but has no podIPs yet", False)


def _end_of_pod(pod: dict[str, Any], *, recreates: bool) -> tuple[SandboxReason, str] | None:
    """Reason and message of a pod that has ended for good; None if it has not."""
    if pod_phase(pod) == "Succeeded":
        return SandboxReason.POD_SUCCEEDED, "Pod completed successfully"
    if pod_phase(pod) == "Failed" and not recreates:
        return SandboxReason.POD_FAILED, "Pod failed"
    return None


def _finished_condition(facts: SandboxFacts) -> ConditionUpdate | None:
    end = None if facts.pod is None else _end_of_pod(facts.pod, recreates=facts.recreates_pod)
    return None if end is None else ConditionUpdate(ConditionType.FINISHED, "True", *end)


def _pod_scheduled_condition(facts: SandboxFacts) -> ConditionUpdate | None:
    status: ConditionStatus = "Unknown"
    reason, message = str(SandboxReason.POD_SCHEDULING_UNKNOWN), ""
    if facts.pod is not None:
        scheduled = find_condition(facts.pod, "PodScheduled")
        status = scheduled.get("status", "Unknown")
        fallback = SandboxReason.POD_SCHEDULED if status == "True" else SandboxReason.POD_SCHEDULING_UNKNOWN
        reason = scheduled.get("reason") or fallback
        message = scheduled.get("message") or ""
        if not scheduled:
            message = "Pod has not reported a PodScheduled condition yet"
    elif facts.has_pod_error and not facts.has_foreign_pod:
        message = "Pod state is unknown. Pod scheduling cannot be determined"
    else:
        return None
    return ConditionUpdate(ConditionType.POD_SCHEDULED, status, reason, message)
