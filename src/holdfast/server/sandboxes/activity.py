"""Record the last use of sandboxes that are suspended when idle.

A sandbox is in use while a stream into it is open. Writes are limited to a fraction of the idle timeout. The
end of the last stream is written too, unless the server stops first. A failed write never affects the stream.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from holdfast.errors import HoldfastError, TemporaryError
from holdfast.retry import clock
from holdfast.sandbox import idle_timeout

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Mapping

    WriteLastUsed = Callable[[Mapping[str, Any], str], Awaitable[None]]

log = logging.getLogger("holdfast.server")

_MAX_WRITE_INTERVAL = 30.0
_WRITES_PER_IDLE_PERIOD = 4


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
