"""Reading and updating conditions, and what a pod's status says about readiness."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import msgspec

from holdfast.api import ConditionType, format_timestamp

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from datetime import datetime

ConditionStatus: TypeAlias = Literal["True", "False", "Unknown"]
# The limit of the published schema.
_MAX_MESSAGE_LENGTH = 32768


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


def repeated_condition(obj: Mapping[str, Any], condition_type: ConditionType) -> ConditionUpdate | None:
    """An update that leaves the condition of that type as it is; None if the object has none."""
    old = find_condition(obj, condition_type)
    if not old:
        return None
    return ConditionUpdate(condition_type, old["status"], old["reason"], old.get("message", ""))


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
