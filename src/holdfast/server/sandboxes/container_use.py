"""Find the container that a request uses, and record the last use of sandboxes that are suspended when idle.

A sandbox is in use while a stream into it is open. Writes are limited to a fraction of the idle timeout. The
end of the last stream is written too, unless the server stops first. A failed write never affects the stream.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, NamedTuple

from holdfast.api import Phase
from holdfast.errors import HoldfastError, TemporaryError
from holdfast.retry import clock
from holdfast.sandbox import idle_timeout, pod_name
from holdfast.server.errors import ApiError, conflict, unprocessable
from holdfast.server.sandboxes import presenters
from holdfast.server.sandboxes.sandbox_objects import owner_uids

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Mapping

    from holdfast.server.sandboxes.service import SandboxService

    WriteLastUsed = Callable[[Mapping[str, Any], str], Awaitable[None]]

log = logging.getLogger("holdfast.server")

_MAX_WRITE_INTERVAL = 30.0
_WRITES_PER_IDLE_PERIOD = 4
_DEFAULT_CONTAINER = "kubectl.kubernetes.io/default-container"
_PHASE_HINTS = {
    Phase.SUSPENDED: "Run `holdfast sandbox resume {name}`; its files are kept.",
    Phase.PENDING: "Wait until it is ready.",
    Phase.DELETING: "Wait until it is deleted, then create it again.",
}


class ActivityTracker:
    """Track open streams per sandbox.

    Args:
        write: Writes a timestamp to the last-used annotation of a sandbox.
    """

    def __init__(self, write: WriteLastUsed) -> None:
        self._write = write
        self._active: dict[str, _SandboxActivity] = {}

    @asynccontextmanager
    async def track(self, sandbox: Mapping[str, Any]) -> AsyncIterator[None]:
        """Count a sandbox as used while the block runs; a write that is due happens before the block."""
        idle = idle_timeout(sandbox)
        if idle is None:
            yield
            return
        uid = sandbox["metadata"]["uid"]
        # No await from here to `create_task`: concurrent streams must share one entry and one task.
        activity = self._active.get(uid)
        if activity is None:
            activity = self._active[uid] = _SandboxActivity(
                sandbox, min(_MAX_WRITE_INTERVAL, idle / _WRITES_PER_IDLE_PERIOD)
            )
        activity.open_streams += 1
        activity.touch()
        try:
            if activity.writer_task is None:
                activity.writer_task = asyncio.create_task(self._write_until_current(uid, activity))
            await self._write_if_due(activity)
            yield
        finally:
            activity.open_streams -= 1
            activity.touch()

    async def _write_until_current(self, uid: str, activity: _SandboxActivity) -> None:
        """Write periodically until no stream is open and the last use is written."""
        try:
            while activity.open_streams or activity.last_used > activity.last_written:
                await clock.asleep(activity.seconds_until_write())
                if activity.open_streams:
                    activity.touch()
                await self._write_if_due(activity)
        finally:
            # No await since the check of the loop: a stream that starts later creates a new entry and task.
            activity.writer_task = None
            if not activity.open_streams:
                self._active.pop(uid, None)

    async def _write_if_due(self, activity: _SandboxActivity) -> None:
        if activity.seconds_until_write() > 0:
            return
        # A use during the write is newer than the timestamp, so that the loop writes once more.
        timestamp = activity.last_used
        # Before the await: otherwise streams that open meanwhile would write too.
        activity.next_write = clock.monotonic() + activity.interval
        try:
            await self._write(activity.sandbox, format_last_used(timestamp))
        except HoldfastError as error:
            log.warning(
                "sandbox %s: last use not recorded: %s", activity.sandbox["metadata"]["name"], error.message
            )
            # Other errors are final, for example after a new sandbox took the name: retries would never end.
            if isinstance(error, TemporaryError):
                return
        activity.last_written = timestamp


class _SandboxActivity:
    """Open streams and timestamps of one sandbox."""

    def __init__(self, sandbox: Mapping[str, Any], interval: float) -> None:
        self.sandbox, self.interval = sandbox, interval
        self.open_streams = 0
        self.last_used = self.last_written = datetime.min.replace(tzinfo=UTC)
        self.next_write = float("-inf")
        self.writer_task: asyncio.Task[None] | None = None

    def touch(self) -> None:
        self.last_used = datetime.now(UTC)

    def seconds_until_write(self) -> float:
        return max(0.0, self.next_write - clock.monotonic())


def format_last_used(timestamp: datetime) -> str:
    """Format a timestamp for the last-used annotation."""
    return timestamp.astimezone(UTC).isoformat(timespec="milliseconds")


class PodTarget(NamedTuple):
    """A container for an exec, a port-forward or a log."""

    pod: str
    container: str


@asynccontextmanager
async def use_container(
    service: SandboxService, name: str, container: str | None = None
) -> AsyncIterator[PodTarget]:
    """Find a running container, and count its sandbox as used while the block runs.

    Args:
        service: The sandboxes of the gateway.
        name: Name of the sandbox or of its SandboxClaim.
        container: Name of the container; the default container if omitted.

    Raises:
        ApiError: 409 with the state of the sandbox if no container is running.
    """
    sandbox, pod = await _find_pod(service, name)
    target = PodTarget(pod["metadata"]["name"], _select_container(pod, container))
    statuses = (pod.get("status") or {}).get("containerStatuses") or ()
    state = next(
        (status.get("state") or {} for status in statuses if status.get("name") == target.container), {}
    )
    if "running" not in state or pod["metadata"].get("deletionTimestamp"):
        raise _not_running_error(name, sandbox)
    async with service.activity.track(sandbox):
        yield target


async def find_container(service: SandboxService, name: str, container: str | None) -> PodTarget:
    """Return a container in any state; the API server reports whether it has a log."""
    _, pod = await _find_pod(service, name)
    return PodTarget(pod["metadata"]["name"], _select_container(pod, container))


async def _find_pod(service: SandboxService, name: str) -> tuple[dict[str, Any], dict[str, Any]]:
    sandbox = await service.lookup_sandbox(name)
    pod = await service.cluster.get("Pod", pod_name(sandbox))
    # A foreign pod of that name must not be reachable.
    if pod is None or sandbox["metadata"]["uid"] not in owner_uids(pod):
        raise _not_running_error(name, sandbox)
    return sandbox, pod


def _select_container(pod: dict[str, Any], requested: str | None) -> str:
    spec = pod["spec"]
    names = [container["name"] for container in spec["containers"]]
    if requested is None:
        default = (pod["metadata"].get("annotations") or {}).get(_DEFAULT_CONTAINER)
        return str(default if default in names else names[0])
    names += [container["name"] for container in spec.get("initContainers") or ()]
    if requested not in names:
        message = f"container {requested[:80]!r}: not found; the pod has {', '.join(names)}"
        raise unprocessable("no-container", message)
    return requested


def _not_running_error(name: str, sandbox: dict[str, Any]) -> ApiError:
    phase, reason, message = presenters.sandbox_phase(sandbox)
    cause = ": ".join(part for part in (reason, message) if part)
    text = f"sandbox {name}: {phase}" + (f" ({cause})" if cause else "")
    hint = _PHASE_HINTS.get(phase, "Run `holdfast sandbox get {name}`.")
    return conflict("not-running", text, hint.format(name=name))
