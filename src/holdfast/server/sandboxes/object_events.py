"""Recent Kubernetes events of the objects of a sandbox."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from holdfast.api import EventView, parse_optional_timestamp
from holdfast.sandbox import pod_name
from holdfast.server.sandboxes import presenters

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from holdfast.server.namespace_client import NamespaceClient

MAX_EVENTS = 20
"""Maximum number of events in a view."""
# Clients of Kubernetes limit the events of one object, and the API server keeps them for an hour: there are
# seldom more than a hundred.
_MAX_LISTED = 500
_KINDS = {"Sandbox", "SandboxClaim", "Pod", "PersistentVolumeClaim"}


async def list_recent_events(
    cluster: NamespaceClient, objects: Sequence[Mapping[str, Any]]
) -> list[EventView]:
    """Return the newest events of a sandbox, its SandboxClaim, its pods and its workspace, the newest last.

    Args:
        cluster: client for the namespace.
        objects: the Sandbox, its SandboxClaim, or both.
    """
    names = {str(obj["metadata"]["name"]) for obj in objects}
    for obj in objects:
        if obj["kind"] == "Sandbox":
            names |= {pod_name(obj), presenters.workspace_pvc_name(obj) or pod_name(obj)}
    # By name, not by UID: the events of a pod tell why the controller replaced it.
    listed = await asyncio.gather(*(cluster.list_events(name, _MAX_LISTED) for name in sorted(names)))
    return recent_events([event for events in listed for event in events], since=_creation_time(objects))


def recent_events(events: Sequence[Mapping[str, Any]], *, since: str) -> list[EventView]:
    """Convert the newest events, the newest last.

    Args:
        events: Event objects.
        since: creation time of the sandbox. Older events belong to a deleted sandbox of the same name.
    """
    oldest = parse_optional_timestamp(since)
    found = []
    for event in events:
        seen_at = parse_optional_timestamp(_last_seen(event))
        kind = (event.get("involvedObject") or {}).get("kind")
        if seen_at is not None and kind in _KINDS and (oldest is None or seen_at >= oldest):
            found.append((seen_at, _present_event(event)))
    found.sort(key=lambda pair: pair[0])
    return [view for _, view in found[-MAX_EVENTS:]]


def _creation_time(objects: Sequence[Mapping[str, Any]]) -> str:
    return min(str(obj["metadata"].get("creationTimestamp") or "") for obj in objects)


def _present_event(event: Mapping[str, Any]) -> EventView:
    return EventView(
        type=str(event.get("type") or "Normal"),
        reason=str(event.get("reason") or ""),
        message=str(event.get("message") or ""),
        object=str(event["involvedObject"]["kind"]),
        count=int((event.get("series") or {}).get("count") or event.get("count") or 1),
        last_seen=_last_seen(event),
    )


def _last_seen(event: Mapping[str, Any]) -> str | None:
    """The time of the last occurrence. Which field has it depends on the version of the events API."""
    times = (
        (event.get("series") or {}).get("lastObservedTime"),
        event.get("lastTimestamp"),
        event.get("eventTime"),
        event["metadata"].get("creationTimestamp"),
    )
    return next((str(time) for time in times if time), None)
