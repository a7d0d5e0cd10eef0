"""A sandbox's status: its conditions, kept steady, and what is read off its pod.

Not here: which condition holds (decide.py).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import msgspec

from holdfast.sandbox.api import Condition, Reason

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from datetime import datetime

Truth: TypeAlias = Literal["True", "False", "Unknown"]
_LONGEST_MESSAGE = 1024
_LONGEST_LAST_WORDS = 400


class Said(msgspec.Struct, frozen=True):
    """One condition, before it has a time."""

    type: Condition
    status: Truth
    reason: str
    message: str = ""


def condition(found: Mapping[str, Any], kind: str) -> Mapping[str, Any]:
    """One condition of an object; empty where it has none of that kind."""
    conditions = (found.get("status") or {}).get("conditions") or ()
    return next((one for one in conditions if one.get("type") == kind), {})


def merged(
    old: Iterable[Mapping[str, Any]], said: Iterable[Said], *, generation: int, now: datetime
) -> list[dict[str, Any]]:
    """The conditions as they are to be: one that still says the same keeps the time of its last change.

    A condition of our types that is not said any more goes; those of other people stay.
    """
    before = {condition["type"]: condition for condition in old}
    ours = {member.value for member in Condition}
    kept = [dict(condition) for kind, condition in before.items() if kind not in ours]
    return kept + [_condition(one, before.get(one.type), generation, now) for one in said]


def _condition(
    said: Said, before: Mapping[str, Any] | None, generation: int, now: datetime
) -> dict[str, Any]:
    since = now.strftime("%Y-%m-%dT%H:%M:%SZ")
    if before is not None and before.get("status") == said.status:
        since = before.get("lastTransitionTime") or since
    return {
        "type": said.type.value,
        "status": said.status,
        "reason": str(said.reason),
        "message": said.message[:_LONGEST_MESSAGE],
        "observedGeneration": generation,
        "lastTransitionTime": since,
    }


def scheduled(pod: Mapping[str, Any]) -> Said:
    """The pod's own word on where it is, with a reason even where it gives none."""
    found = _pod_condition(pod, "PodScheduled")
    if found is None:
        return Said(Condition.POD_SCHEDULED, "Unknown", Reason.POD_SCHEDULING_UNKNOWN)
    truth = found.get("status", "Unknown")
    fallback = Reason.POD_SCHEDULED if truth == "True" else Reason.POD_SCHEDULING_UNKNOWN
    return Said(Condition.POD_SCHEDULED, truth, found.get("reason") or fallback, found.get("message") or "")


def is_ready(pod: Mapping[str, Any]) -> bool:
    """Running, with an address, and ready by its own probes."""
    status = pod.get("status") or {}
    ready = _pod_condition(pod, "Ready")
    return (
        status.get("phase") == "Running"
        and bool(addresses(pod))
        and ready is not None
        and ready.get("status") == "True"
    )


def phase(pod: Mapping[str, Any]) -> str:
    """The pod's phase, `Pending` as long as nobody said."""
    return str((pod.get("status") or {}).get("phase") or "Pending")


def is_leaving(found: Mapping[str, Any]) -> bool:
    """Whether somebody has asked to delete it."""
    return bool(found["metadata"].get("deletionTimestamp"))


def addresses(pod: Mapping[str, Any]) -> list[str]:
    """All addresses of a pod, the main one first."""
    status = pod.get("status") or {}
    many = [entry["ip"] for entry in status.get("podIPs") or () if entry.get("ip")]
    return many or ([status["podIP"]] if status.get("podIP") else [])


def what_is_missing(pod: Mapping[str, Any]) -> str:
    """Why a pod is not ready yet, in the words of whoever knows best: its containers, else its conditions."""
    status = pod.get("status") or {}
    first = [(each, True) for each in status.get("initContainerStatuses") or ()]
    for container, is_first in (*first, *((each, False) for each in status.get("containerStatuses") or ())):
        if words := _trouble(container, may_end=is_first):
            return f"container {container['name']}: {words}"
    for condition in status.get("conditions") or ():
        if condition.get("type") in ("PodScheduled", "Ready") and condition.get("status") != "True":
            said = condition.get("message") or condition.get("reason")
            if said:
                return str(said)
    return f"the pod is {phase(pod)}"


def how_it_ended(pod: Mapping[str, Any]) -> str:
    """What a pod that is over says of its end."""
    status = pod.get("status") or {}
    for container in status.get("containerStatuses") or ():
        ended = (container.get("state") or {}).get("terminated")
        if ended:
            words = f"container {container['name']} ended with exit code {ended.get('exitCode')}"
            return f"{words} ({ended['reason']})" if ended.get("reason") else words
    return str(status.get("message") or status.get("reason") or "")


def _trouble(container: Mapping[str, Any], *, may_end: bool) -> str:
    """What keeps a container from running: the reason in one word first; nothing where it is just beginning.

    One that is to stay has ended too soon whatever its code was; one that prepares the others may end well.
    """
    state = container.get("state") or {}
    waiting, ended = state.get("waiting") or {}, state.get("terminated") or {}
    if ended and (ended.get("exitCode") or not may_end):
        return f"{ended.get('reason') or 'Error'}: {_end(ended, container)}"
    reason = waiting.get("reason")
    if not reason or reason in ("ContainerCreating", "PodInitializing"):
        return ""
    before = (container.get("lastState") or {}).get("terminated") or {}
    if reason == "CrashLoopBackOff" and before:
        return f"{reason}: {_end(before, container)}"
    return f"{reason}: {waiting.get('message', '')}".rstrip(": ")


def _end(ended: Mapping[str, Any], container: Mapping[str, Any]) -> str:
    """How a program ended, how often by now, and its last words."""
    starts = int(container.get("restartCount") or 0) + 1
    often = f", started {starts} times" if starts > 1 else ""
    lines = str(ended.get("message") or "").split("\n")
    last = next((line.strip() for line in reversed(lines) if line.strip()), "")
    return f"it ended with exit code {ended.get('exitCode')}{often}: {last[:_LONGEST_LAST_WORDS]}".rstrip(
        ": "
    )


def _pod_condition(pod: Mapping[str, Any], kind: str) -> Mapping[str, Any] | None:
    conditions = (pod.get("status") or {}).get("conditions") or ()
    return next((condition for condition in conditions if condition.get("type") == kind), None)
