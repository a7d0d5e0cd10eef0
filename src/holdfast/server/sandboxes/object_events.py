"""Kubernetes events of the objects of a sandbox: the recent ones, and why its pod cannot start.

Only events report that the kubelet cannot create the sandbox of a pod or mount its volumes: the status of the
pod stays `ContainerCreating`, and the kubelet retries forever. Some of these failures are temporary, for
example on a busy node. `explain_start` reports those that are permanent, or that were repeated often.
"""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from holdfast.api import EventView, Phase, SandboxReason, parse_optional_timestamp
from holdfast.errors import HoldfastError
from holdfast.sandbox import pod_name
from holdfast.server.sandboxes import presenters

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence, Set as AbstractSet

    from holdfast.api import SandboxView
    from holdfast.server.namespace_client import NamespaceClient

MAX_EVENTS = 20
"""Maximum number of events in a view."""
# Clients of Kubernetes limit the events of one object, and the API server keeps them for an hour: there are
# seldom more than a hundred.
_MAX_LISTED = 500
# The kubelet's clients aggregate repeated events: a pod that starts has less than ten.
_MAX_POD_EVENTS = 100
# The kubelet repeats after about 12 s. A repetition alone may be the consequence of a busy node.
_MIN_SANDBOX_FAILURES = 3
# The kubelet repeats after 0.5, 1, 2 and 4 s: users and controllers may create the missing object meanwhile.
_MIN_MOUNT_FAILURES = 5
_MEMORY_MESSAGES = ("memory limit too low", "cannot allocate memory")
_TEMPORARY_MESSAGES = ("deadline exceeded", "DeadlineExceeded", "Unavailable", "is reserved for")
_MISSING_OBJECT_MESSAGES = (" not found", "non-existent")
# The kubelet reaches these after it has created the sandbox of the pod and mounted all volumes.
_PROGRESS_REASONS = frozenset({"Pulling", "Pulled", "Created", "Started", "Failed", "BackOff"})


async def list_recent_events(
    cluster: NamespaceClient, objects: Sequence[Mapping[str, Any]]
) -> list[EventView]:
    """Return the newest events of a sandbox, its SandboxClaim, its pods and its workspace, the newest last.

    Args:
        cluster: client for the namespace.
        objects: the Sandbox, its SandboxClaim, or both.
    """
    # By name, not by UID: the events of a pod tell why the controller replaced it. Of the objects of each
    # name, only those of the right kind: `workspace-a` is the PVC of `a`, and can be the name of a sandbox.
    references = {(str(obj["kind"]), str(obj["metadata"]["name"])) for obj in objects}
    for obj in objects:
        if obj["kind"] == "Sandbox":
            references.add(("Pod", pod_name(obj)))
            if pvc := presenters.workspace_pvc_name(obj):
                references.add(("PersistentVolumeClaim", pvc))
    names = sorted({name for _, name in references})
    listed = await asyncio.gather(*(cluster.list_events(name, _MAX_LISTED) for name in names))
    events = [event for events in listed for event in events]
    return recent_events(events, references, since=_creation_time(objects))


def recent_events(
    events: Sequence[Mapping[str, Any]], references: AbstractSet[tuple[str, str]], *, since: str
) -> list[EventView]:
    """Convert the newest events, the newest last.

    Args:
        events: Event objects.
        references: kind and name of each object whose events are wanted.
        since: creation time of the sandbox. Older events belong to a deleted sandbox of the same name.
    """
    oldest = parse_optional_timestamp(since)
    found = []
    for event in events:
        seen_at = parse_optional_timestamp(last_seen_at(event))
        if seen_at is not None and _reference(event) in references and (oldest is None or seen_at >= oldest):
            found.append((seen_at, _present_event(event)))
    found.sort(key=lambda pair: pair[0])
    return [view for _, view in found[-MAX_EVENTS:]]


def _reference(event: Mapping[str, Any]) -> tuple[str, str]:
    involved = event.get("involvedObject") or {}
    return str(involved.get("kind")), str(involved.get("name"))


def _creation_time(objects: Sequence[Mapping[str, Any]]) -> str:
    return min(str(obj["metadata"].get("creationTimestamp") or "") for obj in objects)


def _present_event(event: Mapping[str, Any]) -> EventView:
    return EventView(
        type=str(event.get("type") or "Normal"),
        reason=str(event.get("reason") or ""),
        message=str(event.get("message") or ""),
        object=str(event["involvedObject"]["kind"]),
        count=int((event.get("series") or {}).get("count") or event.get("count") or 1),
        last_seen=last_seen_at(event),
    )


def last_seen_at(event: Mapping[str, Any]) -> str | None:
    """The time of the last occurrence. Which field has it depends on the version of the events API."""
    times = (
        (event.get("series") or {}).get("lastObservedTime"),
        event.get("lastTimestamp"),
        event.get("eventTime"),
        event["metadata"].get("creationTimestamp"),
    )
    return next((str(time) for time in times if time), None)


class StartFailure(NamedTuple):
    """Reason and message of an event."""

    reason: str
    message: str


def is_starting(view: SandboxView) -> bool:
    """Whether the state of a sandbox does not say what its pod waits for."""
    # A pod with an IP address has its volumes and its sandbox: its status tells the rest.
    is_waiting = view.phase == Phase.PENDING and view.reason == SandboxReason.DEPENDENCIES_NOT_READY
    return is_waiting and not view.pod_ips


async def explain_start(
    cluster: NamespaceClient, sandbox: Mapping[str, Any] | None, view: SandboxView
) -> SandboxView:
    """Replace reason and message of a starting sandbox if events tell that its pod cannot start."""
    if sandbox is None or not is_starting(view):
        return view
    try:
        pod = await cluster.get("Pod", pod_name(sandbox))
        if pod is None:
            return view
        events = await cluster.list_events(pod["metadata"]["name"], _MAX_POD_EVENTS)
    except HoldfastError:
        return view  # the state is known also without an explanation
    failure = find_start_failure(events, pod["metadata"]["uid"])
    if failure is None:
        return view
    return msgspec.structs.replace(view, reason=failure.reason, message=failure.message)


def find_start_failure(events: Sequence[Mapping[str, Any]], pod_uid: str) -> StartFailure | None:
    """Find the newest event that tells that a pod cannot start; None if the pod may still start.

    Args:
        events: events of objects with the name of the pod.
        pod_uid: UID of the pod; an earlier pod may have had the same name.
    """
    own = sorted(
        (event for event in events if (event.get("involvedObject") or {}).get("uid") == pod_uid),
        key=_last_seen,
    )
    newest = next((event for event in reversed(own) if _is_final(event)), None)
    if newest is None:
        return None
    has_continued = any(
        event.get("reason") in _PROGRESS_REASONS and _last_seen(event) >= _last_seen(newest) for event in own
    )
    return None if has_continued else StartFailure(str(newest["reason"]), str(newest.get("message") or ""))


def _is_final(event: Mapping[str, Any]) -> bool:
    message, count = str(event.get("message") or ""), int(event.get("count") or 1)
    if event.get("reason") == "FailedMount":
        return count >= _MIN_MOUNT_FAILURES and _contains(message, _MISSING_OBJECT_MESSAGES)
    if event.get("reason") != "FailedCreatePodSandBox" or _contains(message, _TEMPORARY_MESSAGES):
        return False
    return count >= _MIN_SANDBOX_FAILURES or _contains(message, _MEMORY_MESSAGES)


def _contains(message: str, texts: Sequence[str]) -> bool:
    return any(text in message for text in texts)


def _last_seen(event: Mapping[str, Any]) -> datetime:
    return parse_optional_timestamp(last_seen_at(event)) or datetime.min.replace(tzinfo=UTC)
