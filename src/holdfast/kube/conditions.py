"""Conditions for `Objects.wait`: pure functions of an object.

A condition receives the object, or None while it does not exist. It returns whether it is met or can no
longer be met, and what it observed. `watch` does the waiting.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from typing import Any, TypeAlias


@dataclass(frozen=True, slots=True)
class WaitResult:
    """The result of evaluating a condition."""

    done: bool = False
    failed: str = ""
    """why the condition can no longer be met"""
    observed: str = ""
    """the current state, for error messages"""


WaitCondition: TypeAlias = Callable[["dict[str, Any] | None"], WaitResult]
WaitListCondition: TypeAlias = Callable[[list[dict[str, Any]]], WaitResult]

_ABSENT = WaitResult(observed="does not exist")


def _of_existing_object(evaluate: Callable[[dict[str, Any]], WaitResult]) -> WaitCondition:
    """A condition that is not met while the object does not exist."""

    @wraps(evaluate)
    def until(obj: dict[str, Any] | None) -> WaitResult:
        return _ABSENT if obj is None else evaluate(obj)

    return until


def _get_path(value: Any, *path: str) -> Any:
    for key in path:
        value = value.get(key) if isinstance(value, dict) else None
    return value


def _conditions_by_type(obj: dict[str, Any]) -> dict[str, dict[str, Any]]:
    conditions = _get_path(obj, "status", "conditions")
    rows = conditions if isinstance(conditions, list) else []
    return {str(row.get("type")): row for row in rows if isinstance(row, dict)}


def condition(kind: str, status: str = "True") -> WaitCondition:
    """A status condition of any object, such as `condition("Established")`."""

    @_of_existing_object
    def until(obj: dict[str, Any]) -> WaitResult:
        row = _conditions_by_type(obj).get(kind)
        if row is None:
            return WaitResult(observed=f"no condition {kind} yet")
        reason = f" ({row['reason']})" if row.get("reason") else ""
        return WaitResult(done=row.get("status") == status, observed=f"{kind} is {row.get('status')}{reason}")

    return until


@_of_existing_object
def pod_ready(obj: dict[str, Any]) -> WaitResult:
    """The pod is ready; fails if the pod has ended."""
    phase = _get_path(obj, "status", "phase")
    if phase in ("Failed", "Succeeded"):  # a tuple: the value may be unhashable
        return WaitResult(failed=f"the pod has ended: {phase}{_format_reason(_get_path(obj, 'status'))}")
    ready = condition("Ready")(obj)
    return WaitResult(done=ready.done, observed=f"{phase or 'no phase'}{_container_waiting_reason(obj)}")


@_of_existing_object
def pod_succeeded(obj: dict[str, Any]) -> WaitResult:
    """The pod has succeeded; fails if it has failed."""
    phase = _get_path(obj, "status", "phase")
    if phase == "Failed":
        return WaitResult(failed=f"the pod failed{_format_reason(_get_path(obj, 'status'))}")
    return WaitResult(
        done=phase == "Succeeded", observed=f"{phase or 'no phase'}{_container_waiting_reason(obj)}"
    )


@_of_existing_object
def job_complete(obj: dict[str, Any]) -> WaitResult:
    """The job is complete; fails if it has failed."""
    rows = _conditions_by_type(obj)
    if _get_path(rows, "Failed", "status") == "True":
        return WaitResult(failed=f"the job failed{_format_reason(rows['Failed'])}")
    done = _get_path(rows, "Complete", "status") == "True"
    return WaitResult(done=done, observed=f"{_get_path(obj, 'status', 'succeeded') or 0} succeeded")


@_of_existing_object
def rollout_complete(obj: dict[str, Any]) -> WaitResult:
    """All replicas of a Deployment, StatefulSet or DaemonSet are updated and available."""
    status = _get_path(obj, "status") or {}
    if (_get_path(status, "observedGeneration") or 0) < (_get_path(obj, "metadata", "generation") or 0):
        # Until then the status conditions belong to an older generation.
        return WaitResult(observed="the controller has not observed the change yet")
    progressing = _conditions_by_type(obj).get("Progressing", {})
    if progressing.get("reason") == "ProgressDeadlineExceeded":
        return WaitResult(failed="the rollout exceeded its progress deadline")
    if obj.get("kind") == "DaemonSet":
        want = status.get("desiredNumberScheduled") or 0
        have = (status.get("updatedNumberScheduled") or 0, status.get("numberAvailable") or 0, want)
    else:
        wanted = _get_path(obj, "spec", "replicas")
        want = 1 if wanted is None else wanted
        ready = status.get("availableReplicas" if obj.get("kind") == "Deployment" else "readyReplicas") or 0
        # `replicas` counts old pods as well: the rollout is complete when none is left.
        have = (status.get("updatedReplicas") or 0, ready, status.get("replicas") or 0)
    return WaitResult(
        done=have == (want, want, want), observed=f"{have[0]} updated, {have[1]} available of {want}"
    )


@_of_existing_object
def namespace_active(obj: dict[str, Any]) -> WaitResult:
    """The namespace is active."""
    phase = _get_path(obj, "status", "phase")
    return WaitResult(done=phase == "Active", observed=f"phase {phase}")


def object_deleted(uid: str | None = None) -> WaitCondition:
    """The object, or the one with this uid, no longer exists."""

    def until(obj: dict[str, Any] | None) -> WaitResult:
        if obj is None or (uid is not None and _get_path(obj, "metadata", "uid") != uid):
            return WaitResult(done=True)
        state = "is being deleted" if _get_path(obj, "metadata", "deletionTimestamp") else "exists"
        finalizers = _get_path(obj, "metadata", "finalizers")
        suffix = f", finalizers: {', '.join(map(str, finalizers))}" if finalizers else ""
        return WaitResult(observed=state + suffix)

    return until


def _format_reason(row: Any) -> str:
    reason = _get_path(row, "reason")
    return f" ({reason})" if isinstance(reason, str) and reason else ""


def _container_waiting_reason(obj: dict[str, Any]) -> str:
    """The reason of a waiting container, such as ImagePullBackOff."""
    rows = _get_path(obj, "status", "containerStatuses")
    for row in rows if isinstance(rows, list) else []:
        reason = _get_path(row, "state", "waiting", "reason")
        if isinstance(reason, str):
            return f", a container is waiting ({reason})"
    return ""
