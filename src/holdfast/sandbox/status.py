"""Conditions of sandboxes, and what a pod's status says about readiness and termination."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import msgspec

from holdfast.api import ConditionType, SandboxReason, format_timestamp

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from datetime import datetime

ConditionStatus: TypeAlias = Literal["True", "False", "Unknown"]
# Messages may contain output of the user's program: the limits bound each status write.
_MAX_MESSAGE_LENGTH = 1024
_MAX_LAST_LINE_LENGTH = 400


class ConditionUpdate(msgspec.Struct, frozen=True):
    """A condition without its transition time."""

    type: ConditionType
    status: ConditionStatus
    reason: str
    message: str = ""


def not_ready_condition(reason: str, message: str) -> ConditionUpdate:
    """The Ready condition with status False."""
    return ConditionUpdate(ConditionType.READY, "False", reason, message)


def find_condition(obj: Mapping[str, Any], condition_type: str) -> Mapping[str, Any]:
    """The condition of that type; empty if the object has none."""
    conditions = (obj.get("status") or {}).get("conditions") or ()
    return next((condition for condition in conditions if condition.get("type") == condition_type), {})


def has_condition(obj: Mapping[str, Any], condition_type: str) -> bool:
    """Whether the condition of that type has status True."""
    return find_condition(obj, condition_type).get("status") == "True"


def updated_conditions(
    obj: Mapping[str, Any], updates: Iterable[ConditionUpdate], now: datetime
) -> list[dict[str, Any]]:
    """Conditions for the status of an object.

    A condition keeps its transition time while its status is the same. Conditions of holdfast's types that
    are not in `updates` are removed; conditions of other controllers are kept.
    """
    old = (obj.get("status") or {}).get("conditions") or ()
    own_types = {member.value for member in ConditionType}
    kept = [dict(condition) for condition in old if condition["type"] not in own_types]
    return kept + [_build_condition(update, obj, now) for update in updates]


def _build_condition(update: ConditionUpdate, obj: Mapping[str, Any], now: datetime) -> dict[str, Any]:
    previous = find_condition(obj, update.type)
    unchanged = previous.get("status") == update.status
    return {
        "type": update.type.value,
        "status": update.status,
        "reason": str(update.reason),
        "message": update.message[:_MAX_MESSAGE_LENGTH],
        "observedGeneration": obj["metadata"].get("generation", 0),
        "lastTransitionTime": (unchanged and previous.get("lastTransitionTime")) or format_timestamp(now),
    }


def pod_scheduled_condition(pod: Mapping[str, Any]) -> ConditionUpdate:
    """The pod's PodScheduled condition, with a reason even if the pod gives none."""
    scheduled = find_condition(pod, "PodScheduled")
    status = scheduled.get("status", "Unknown")
    fallback = SandboxReason.POD_SCHEDULED if status == "True" else SandboxReason.POD_SCHEDULING_UNKNOWN
    return ConditionUpdate(
        ConditionType.POD_SCHEDULED,
        status,
        scheduled.get("reason") or fallback,
        scheduled.get("message") or "",
    )


def is_pod_ready(pod: Mapping[str, Any]) -> bool:
    """Whether the pod runs, has an IP address and passes its readiness probes."""
    return pod_phase(pod) == "Running" and bool(pod_ips(pod)) and has_condition(pod, "Ready")


def pod_phase(pod: Mapping[str, Any]) -> str:
    """The pod's phase; `Pending` until the kubelet reports one."""
    return str((pod.get("status") or {}).get("phase") or "Pending")


def is_being_deleted(obj: Mapping[str, Any]) -> bool:
    """Whether the object has a deletion timestamp."""
    return bool(obj["metadata"].get("deletionTimestamp"))


def pod_ips(pod: Mapping[str, Any]) -> list[str]:
    """All IP addresses of a pod, the primary one first."""
    status = pod.get("status") or {}
    ips = [entry["ip"] for entry in status.get("podIPs") or () if entry.get("ip")]
    return ips or ([status["podIP"]] if status.get("podIP") else [])


def not_ready_message(pod: Mapping[str, Any]) -> str:
    """Explain why a pod is not ready: by its containers if possible, else by its conditions."""
    status = pod.get("status") or {}
    for field in ("initContainerStatuses", "containerStatuses"):
        for container in status.get(field) or ():
            if problem := _container_problem(container, may_exit=field == "initContainerStatuses"):
                return f"container {container['name']}: {problem}"
    for condition in status.get("conditions") or ():
        if condition.get("type") in ("PodScheduled", "Ready") and condition.get("status") != "True":
            message = condition.get("message") or condition.get("reason")
            if message:
                return str(message)
    return f"the pod is {pod_phase(pod)}"


def termination_message(pod: Mapping[str, Any]) -> str:
    """Explain how a finished pod ended."""
    status = pod.get("status") or {}
    for container in status.get("containerStatuses") or ():
        terminated = (container.get("state") or {}).get("terminated")
        if terminated:
            message = f"container {container['name']} exited with code {terminated.get('exitCode')}"
            return f"{message} ({terminated['reason']})" if terminated.get("reason") else message
    return str(status.get("message") or status.get("reason") or "")


def _container_problem(container: Mapping[str, Any], *, may_exit: bool) -> str:
    """Describe why a container does not run, starting with the reason; empty if it is starting normally.

    Only an init container may exit with code 0.
    """
    state = container.get("state") or {}
    waiting, terminated = state.get("waiting") or {}, state.get("terminated") or {}
    if terminated and (terminated.get("exitCode") or not may_exit):
        return f"{terminated.get('reason') or 'Error'}: {_describe_exit(terminated, container)}"
    reason = waiting.get("reason")
    if not reason or reason in ("ContainerCreating", "PodInitializing"):
        return ""
    previous = (container.get("lastState") or {}).get("terminated") or {}
    if reason == "CrashLoopBackOff" and previous:
        return f"{reason}: {_describe_exit(previous, container)}"
    return f"{reason}: {waiting.get('message', '')}".rstrip(": ")


def _describe_exit(terminated: Mapping[str, Any], container: Mapping[str, Any]) -> str:
    """Exit code, number of starts and last line of output of a container."""
    starts = int(container.get("restartCount") or 0) + 1
    count = f", started {starts} times" if starts > 1 else ""
    lines = str(terminated.get("message") or "").split("\n")
    last = next((line.strip() for line in reversed(lines) if line.strip()), "")
    message = f"exited with code {terminated.get('exitCode')}{count}: {last[:_MAX_LAST_LINE_LENGTH]}"
    return message.rstrip(": ")
