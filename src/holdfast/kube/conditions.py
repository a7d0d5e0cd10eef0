"""What can be waited for: pure readings of an object as the server shows it.

Each takes the object, or None while there is none, and says whether the wait is over, can no longer succeed,
or what it sees meanwhile. Not here: the waiting (`watch`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias


@dataclass(frozen=True, slots=True)
class Sight:
    """One reading."""

    done: bool = False
    failed: str = ""
    """why it can no longer come true"""
    seen: str = ""
    """what is there instead, in few words"""


Until: TypeAlias = Callable[["dict[str, Any] | None"], Sight]
UntilMany: TypeAlias = Callable[[list[dict[str, Any]]], Sight]

_ABSENT = Sight(seen="it is not there")


def _at(value: Any, *path: str) -> Any:
    for key in path:
        value = value.get(key) if isinstance(value, dict) else None
    return value


def _conditions(obj: dict[str, Any]) -> dict[str, dict[str, Any]]:
    found = _at(obj, "status", "conditions")
    rows = found if isinstance(found, list) else []
    return {str(row.get("type")): row for row in rows if isinstance(row, dict)}


def condition(kind: str, status: str = "True") -> Until:
    """Any condition of any object: `condition("Established")`."""

    def until(obj: dict[str, Any] | None) -> Sight:
        if obj is None:
            return _ABSENT
        row = _conditions(obj).get(kind)
        if row is None:
            return Sight(seen=f"no condition {kind} yet")
        reason = f" ({row['reason']})" if row.get("reason") else ""
        return Sight(done=row.get("status") == status, seen=f"{kind} is {row.get('status')}{reason}")

    return until


def pod_ready(obj: dict[str, Any] | None) -> Sight:
    """The pod's containers are ready; a pod that has ended will never be."""
    if obj is None:
        return _ABSENT
    phase = _at(obj, "status", "phase")
    if phase in ("Failed", "Succeeded"):  # a tuple: the server may have put anything there
        return Sight(failed=f"the pod has ended: {phase}{_reason(_at(obj, 'status'))}")
    sight = condition("Ready")(obj)
    return Sight(done=sight.done, seen=f"{phase or 'no phase'}{_container_trouble(obj)}")


def pod_done(obj: dict[str, Any] | None) -> Sight:
    """The pod has succeeded."""
    if obj is None:
        return _ABSENT
    phase = _at(obj, "status", "phase")
    if phase == "Failed":
        return Sight(failed=f"the pod failed{_reason(_at(obj, 'status'))}")
    return Sight(done=phase == "Succeeded", seen=f"{phase or 'no phase'}{_container_trouble(obj)}")


def job_done(obj: dict[str, Any] | None) -> Sight:
    """The job is complete; one that has failed will never be."""
    if obj is None:
        return _ABSENT
    rows = _conditions(obj)
    if _at(rows, "Failed", "status") == "True":
        return Sight(failed=f"the job failed{_reason(rows['Failed'])}")
    done = _at(rows, "Complete", "status") == "True"
    return Sight(done=done, seen=f"{_at(obj, 'status', 'succeeded') or 0} succeeded")


def rollout_done(obj: dict[str, Any] | None) -> Sight:
    """The newest version of a Deployment, StatefulSet or DaemonSet runs on all of its replicas."""
    if obj is None:
        return _ABSENT
    status = _at(obj, "status") or {}
    if (_at(status, "observedGeneration") or 0) < (_at(obj, "metadata", "generation") or 0):
        # Nor do the conditions say anything about this version until then.
        return Sight(seen="the controller has not seen the change yet")
    progressing = _conditions(obj).get("Progressing", {})
    if progressing.get("reason") == "ProgressDeadlineExceeded":
        return Sight(failed="the rollout made no progress in its time")
    if obj.get("kind") == "DaemonSet":
        want = status.get("desiredNumberScheduled") or 0
        have = (status.get("updatedNumberScheduled") or 0, status.get("numberAvailable") or 0, want)
    else:
        wanted = _at(obj, "spec", "replicas")
        want = 1 if wanted is None else wanted
        ready = status.get("availableReplicas" if obj.get("kind") == "Deployment" else "readyReplicas") or 0
        have = (status.get("updatedReplicas") or 0, ready, status.get("replicas") or 0)
    return Sight(done=have == (want, want, want), seen=f"{have[0]} updated, {have[1]} available of {want}")


def namespace_active(obj: dict[str, Any] | None) -> Sight:
    """The namespace is there and active; one that is going away will not come back under its uid."""
    if obj is None:
        return _ABSENT
    phase = _at(obj, "status", "phase")
    return Sight(done=phase == "Active", seen=f"phase {phase}")


def deleted(uid: str | None = None) -> Until:
    """The object, or the one with this uid, is gone."""

    def until(obj: dict[str, Any] | None) -> Sight:
        if obj is None or (uid is not None and _at(obj, "metadata", "uid") != uid):
            return Sight(done=True)
        going = "is going away" if _at(obj, "metadata", "deletionTimestamp") else "is there"
        held = _at(obj, "metadata", "finalizers")
        return Sight(seen=going + (f", held by {', '.join(map(str, held))}" if held else ""))

    return until


def _reason(row: Any) -> str:
    reason = _at(row, "reason")
    return f" ({reason})" if isinstance(reason, str) and reason else ""


def _container_trouble(obj: dict[str, Any]) -> str:
    """Why a container waits: ImagePullBackOff, CrashLoopBackOff, …"""
    rows = _at(obj, "status", "containerStatuses")
    for row in rows if isinstance(rows, list) else []:
        reason = _at(row, "state", "waiting", "reason")
        if isinstance(reason, str):
            return f", a container waits ({reason})"
    return ""
