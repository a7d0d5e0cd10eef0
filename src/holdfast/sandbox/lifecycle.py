"""Times in the life of a sandbox: expiry, idle suspension, and recreation of failed pods."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

from holdfast.api import (
    FAILED_PODS_ANNOTATION,
    FAILURE_COUNT_ANNOTATION,
    IDLE_SUSPEND_AFTER_ANNOTATION,
    LAST_USED_ANNOTATION,
    ConditionType,
    SandboxReason,
    parse_optional_timestamp,
    parse_timestamp,
)
from holdfast.retry import exponential
from holdfast.sandbox.actions import Delete, Patch
from holdfast.sandbox.manifests import controller_of
from holdfast.sandbox.status import find_condition, has_condition

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

    from holdfast.sandbox.actions import Action

# Lower bounds for requeue-after: clocks that differ must not make the controller spin.
MIN_EXPIRY_REQUEUE_SECONDS = 2.0
# The published API expires a SandboxClaim to the second.
MIN_CLAIM_REQUEUE_SECONDS = 0.1
MIN_IDLE_REQUEUE_SECONDS = 1.0
_BACKOFF = exponential(1.0, cap=300.0, jitter=0.0)
# A pod that ran this long was healthy: its failure counts as the first.
_BACKOFF_RESET_SECONDS = 600.0
_MAX_NUMBER_DIGITS = 9
# The API declares 32 bits, but the API server does not enforce them. A larger number overflows datetime.
_MAX_TTL_SECONDS = 2**31 - 1


def is_marked_expired(sandbox: Mapping[str, Any]) -> bool:
    """Whether the status already reports the expiry."""
    return bool(find_condition(sandbox, ConditionType.READY).get("reason") == SandboxReason.SANDBOX_EXPIRED)


def seconds_until_shutdown(sandbox: Mapping[str, Any], now: datetime) -> float | None:
    """Seconds until the shutdown time; 0 if it has passed, None if there is none."""
    shutdown = sandbox["spec"].get("shutdownTime")
    return _seconds_left(parse_timestamp(shutdown), now, MIN_EXPIRY_REQUEUE_SECONDS) if shutdown else None


def recreates_failed_pods(sandbox: Mapping[str, Any]) -> bool:
    """Whether the sandbox controller recreates failed pods; only if an annotation requests it.

    The published controller never does, and its clients treat a failed pod as final.

    It does not while the sandbox belongs to a warm pool: the pool replaces the whole sandbox, and two
    controllers that recreate pods would not respect each other's backoff.
    """
    if (controller_of(sandbox) or {}).get("kind") == "SandboxWarmPool":
        return False
    annotations = sandbox["metadata"].get("annotations") or {}
    return bool(annotations.get(FAILED_PODS_ANNOTATION) == "Recreate")


def seconds_until_recreation(pod: Mapping[str, Any], sandbox: Mapping[str, Any], now: datetime) -> float:
    """Seconds until a failed pod is replaced, with exponential backoff for consecutive failures."""
    finished = _pod_finished_at(pod)
    if finished is None:
        return 0.0
    delay = _BACKOFF.delay(previous_failures(pod, sandbox) + 1, 0.0, float)
    return max(0.0, delay - (now - finished).total_seconds())


def previous_failures(pod: Mapping[str, Any], sandbox: Mapping[str, Any]) -> int:
    """Number of consecutive pods that failed before this one; 0 if this one ran for a while."""
    started = parse_optional_timestamp((pod.get("status") or {}).get("startTime"))
    finished = _pod_finished_at(pod)
    if started and finished and (finished - started).total_seconds() >= _BACKOFF_RESET_SECONDS:
        return 0
    return number_annotation(sandbox, FAILURE_COUNT_ANNOTATION)


def number_annotation(obj: Mapping[str, Any], annotation: str) -> int:
    """A number in an annotation; 0 if it is missing, too large or not a number."""
    text = (obj["metadata"].get("annotations") or {}).get(annotation, "")
    # Users can write annotations: int() raises for thousands of digits, and the object would never reconcile.
    return int(text) if text.isascii() and text.isdigit() and len(text) <= _MAX_NUMBER_DIGITS else 0


def replacement_actions(pod: dict[str, Any], sandbox: Mapping[str, Any]) -> tuple[Action, ...]:
    """Count the failure on the sandbox, then delete the pod; the next reconciliation creates the new one."""
    # Count first: a crash between the writes counts the failure twice, but never skips the backoff.
    count = {FAILURE_COUNT_ANNOTATION: str(previous_failures(pod, sandbox) + 1)}
    return (Patch.of(sandbox, {"metadata": {"annotations": count}}), Delete.of(pod))


def _pod_finished_at(pod: Mapping[str, Any]) -> datetime | None:
    """When the last container ended; for a pod that never started, its last condition or its creation."""
    status = pod.get("status") or {}
    containers = [*(status.get("initContainerStatuses") or ()), *(status.get("containerStatuses") or ())]
    finished = [((each.get("state") or {}).get("terminated") or {}).get("finishedAt") for each in containers]
    transitions = [each.get("lastTransitionTime") for each in status.get("conditions") or ()]
    for texts in (finished, transitions, [pod["metadata"].get("creationTimestamp")]):
        if times := [parse_timestamp(text) for text in texts if text]:
            return max(times)
    return None


def seconds_until_idle_suspend(sandbox: Mapping[str, Any], now: datetime) -> float | None:
    """Seconds until an idle sandbox is suspended.

    The gateway's API server records each use in an annotation. Without that record the sandbox keeps running.

    Returns:
        0 if it is due now; None if the sandbox is not ready, has no idle timeout or no recorded use.
    """
    timeout = idle_timeout(sandbox)
    used = parse_optional_timestamp((sandbox["metadata"].get("annotations") or {}).get(LAST_USED_ANNOTATION))
    ready = find_condition(sandbox, ConditionType.READY)
    since = (
        parse_optional_timestamp(ready.get("lastTransitionTime")) if ready.get("status") == "True" else None
    )
    if timeout is None or since is None or used is None:
        return None
    # The later of both: after a resume, the last use may be older than the timeout.
    # Subtract times, do not add to them: the last representable time overflows.
    left = timeout - (now - max(since, used)).total_seconds()
    return 0.0 if left <= 0 else max(MIN_IDLE_REQUEUE_SECONDS, left)


def idle_timeout(sandbox: Mapping[str, Any]) -> int | None:
    """Seconds that a sandbox may be idle; None if it has no limit."""
    return number_annotation(sandbox, IDLE_SUSPEND_AFTER_ANNOTATION) or None


def failed_pods_annotations(sandbox_claim: Mapping[str, Any]) -> dict[str, str]:
    """Annotations about failed pods that the sandbox of a SandboxClaim gets from it.

    With `ttlSecondsAfterFinished`, a failed pod finishes the SandboxClaim. If it were recreated, the TTL
    would never elapse.
    """
    lifecycle = sandbox_claim["spec"].get("lifecycle") or {}
    if lifecycle.get("ttlSecondsAfterFinished") is not None:
        return {FAILED_PODS_ANNOTATION: "Keep"}
    requested = (sandbox_claim["metadata"].get("annotations") or {}).get(FAILED_PODS_ANNOTATION)
    return {} if requested is None else {FAILED_PODS_ANNOTATION: requested}


def seconds_until_claim_expiry(sandbox_claim: Mapping[str, Any], now: datetime) -> float | None:
    """Seconds until the shutdown time of a SandboxClaim or its TTL after it finished, whichever is earlier.

    Returns:
        0 if it has expired; None if it does not expire.
    """
    lifecycle = sandbox_claim["spec"].get("lifecycle") or {}
    ends = [parse_timestamp(lifecycle["shutdownTime"])] if lifecycle.get("shutdownTime") else []
    ttl = lifecycle.get("ttlSecondsAfterFinished")
    if ttl is not None and has_condition(sandbox_claim, ConditionType.FINISHED):
        finished = find_condition(sandbox_claim, ConditionType.FINISHED)["lastTransitionTime"]
        ends.append(parse_timestamp(finished) + timedelta(seconds=min(ttl, _MAX_TTL_SECONDS)))
    return _seconds_left(min(ends), now, MIN_CLAIM_REQUEUE_SECONDS) if ends else None


def _seconds_left(end: datetime, now: datetime, minimum: float) -> float:
    left = (end - now).total_seconds()
    return 0.0 if left <= 0 else max(minimum, left)
