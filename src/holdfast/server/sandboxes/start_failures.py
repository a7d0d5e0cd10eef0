"""Failures to start a pod that only the kubelet's events tell: no sandbox for its containers, no volume.

The pod's status stays `ContainerCreating` meanwhile, and the kubelet repeats its attempts without end. Some
failures end by themselves, for example on a busy node. Only those that cannot, or that were repeated often,
are reported.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from holdfast.api import Phase, SandboxReason, parse_optional_timestamp
from holdfast.errors import HoldfastError
from holdfast.sandbox import pod_name
from holdfast.server.sandboxes.object_events import last_seen_at

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from holdfast.api import SandboxView
    from holdfast.server.namespace_client import NamespaceClient

# The kubelet's clients aggregate repeated events: a pod that starts has less than ten.
_MAX_EVENTS = 100
# The kubelet repeats after about 12 s. A repetition alone may be the consequence of a busy node.
_MIN_SANDBOX_FAILURES = 3
# The kubelet repeats after 0.5, 1, 2 and 4 s: users and controllers may create the missing object meanwhile.
_MIN_MOUNT_FAILURES = 5
_MEMORY_MESSAGES = ("memory limit too low", "cannot allocate memory")
_TEMPORARY_MESSAGES = ("deadline exceeded", "DeadlineExceeded", "Unavailable", "is reserved for")
_MISSING_OBJECT_MESSAGES = (" not found", "non-existent")
# The kubelet reaches these after it has created the sandbox of the pod and mounted all volumes.
_PROGRESS_REASONS = frozenset({"Pulling", "Pulled", "Created", "Started", "Failed", "BackOff"})


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
        events = await cluster.list_events(pod["metadata"]["name"], _MAX_EVENTS)
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
