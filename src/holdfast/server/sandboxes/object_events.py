"""Recent Kubernetes events of the objects of a sandbox."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from holdfast.api import EventView, parse_optional_timestamp
from holdfast.sandbox import pod_name
from holdfast.server.sandboxes import presenters

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence, Set as AbstractSet

    from holdfast.server.namespace_client import NamespaceClient

MAX_EVENTS = 20
"""Maximum number of events in a view."""
# Clients of Kubernetes limit the events of one object, and the API server keeps them for an hour: there are
# seldom more than a hundred.
_MAX_LISTED = 500


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
