"""How long things live: when a sandbox is over, and when a failed pod is made again.

Not here: what else follows from it (decide.py).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from holdfast.sandbox.actions import Delete, Patch
from holdfast.sandbox.api import FAILED_PODS, FAILURES, Condition, Reason
from holdfast.sandbox.moments import moment
from holdfast.sandbox.ownership import controller_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from datetime import datetime

    from holdfast.sandbox.actions import Action

SOONEST_LOOK = 2.0
"""A shutdown time is looked for again no sooner than this, whatever the clocks say."""
_FIRST_PAUSE, _LONGEST_PAUSE = 1.0, 300.0
_STEADY = 600.0
"""A pod that ran for so long was well: the next failure counts as the first one."""


def is_over(sandbox: Mapping[str, Any], now: datetime) -> bool:
    """Whether the shutdown time has come."""
    ends = _shutdown(sandbox)
    return ends is not None and now >= ends


def is_marked(sandbox: Mapping[str, Any]) -> bool:
    """Whether the status says already that the time is over."""
    conditions = (sandbox.get("status") or {}).get("conditions") or ()
    return any(
        condition.get("type") == Condition.READY and condition.get("reason") == Reason.SANDBOX_EXPIRED
        for condition in conditions
    )


def seconds_left(sandbox: Mapping[str, Any], now: datetime) -> float | None:
    """How long until the shutdown time, where there is one that is still to come."""
    ends = _shutdown(sandbox)
    if ends is None or now >= ends:
        return None
    return max(SOONEST_LOOK, (ends - now).total_seconds())


def recreates(sandbox: Mapping[str, Any]) -> bool:
    """Whether a failed pod is to be made again; while a sandbox waits in a pool, that replaces it whole.

    Two that make pods in its place would keep to neither's pauses.
    """
    if (controller_of(sandbox) or {}).get("kind") == "SandboxWarmPool":
        return False
    annotations = sandbox["metadata"].get("annotations") or {}
    return bool(annotations.get(FAILED_PODS, "Recreate") != "Keep")


def until_recreation(pod: Mapping[str, Any], sandbox: Mapping[str, Any], now: datetime) -> float:
    """How long a failed pod stays before it is replaced: twice as long after each failure in a row."""
    pause = min(_LONGEST_PAUSE, _FIRST_PAUSE * 2.0 ** min(failures_before(pod, sandbox), 16))
    ended = _ended_at(pod)
    if ended is None:
        return 0.0
    return max(0.0, pause - (now - ended).total_seconds())


def failures_before(pod: Mapping[str, Any], sandbox: Mapping[str, Any]) -> int:
    """How many pods failed right before this one; a steady run of this one starts the count anew."""
    text = (sandbox["metadata"].get("annotations") or {}).get(FAILURES, "0")
    before = int(text) if text.isascii() and text.isdigit() else 0
    started, ended = _time((pod.get("status") or {}).get("startTime")), _ended_at(pod)
    if started is not None and ended is not None and (ended - started).total_seconds() >= _STEADY:
        return 0
    return before


def replacement(pod: dict[str, Any], sandbox: Mapping[str, Any]) -> tuple[Action, ...]:
    """Count the failure where it outlives the pod, then delete that; the next look makes the new one."""
    count = {FAILURES: str(failures_before(pod, sandbox) + 1)}
    return (Patch.of(sandbox, {"metadata": {"annotations": count}}), Delete.of(pod))


def _shutdown(sandbox: Mapping[str, Any]) -> datetime | None:
    return _time(sandbox["spec"].get("shutdownTime"))


def _ended_at(pod: Mapping[str, Any]) -> datetime | None:
    """When its last container ended; of a pod that was never let in, what it says of itself last."""
    told = pod.get("status") or {}
    containers = [*(told.get("initContainerStatuses") or ()), *(told.get("containerStatuses") or ())]
    ends = _times(
        ((each.get("state") or {}).get("terminated") or {}).get("finishedAt") for each in containers
    )
    changes = _times(each.get("lastTransitionTime") for each in told.get("conditions") or ())
    return max(ends or changes, default=None) or _time(pod["metadata"].get("creationTimestamp"))


def _times(texts: Iterable[str | None]) -> list[datetime]:
    return [moment(text) for text in texts if text]


def _time(text: str | None) -> datetime | None:
    return moment(text) if text else None
