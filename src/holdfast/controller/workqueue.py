"""Work queue of keys: deduplicated, and never processed twice at the same time.

A failed key is retried with exponential backoff. A reconciler can request a later run.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from holdfast.retry import exponential, random_fraction

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Hashable

_FAILURE_BACKOFF = exponential(0.5, cap=60)
# The delay reaches its cap before this count; counting further would only enlarge the exponent.
_MAX_COUNTED_FAILURES = 12


class WorkQueue:
    """Runs `reconcile` for added keys.

    Args:
        reconcile: Returns the seconds until the key is due again, or None.
        workers: Number of concurrent calls.
        on_failure: Called with each exception.
    """

    def __init__(
        self,
        reconcile: Callable[[Hashable], Awaitable[float | None]],
        *,
        workers: int = 64,
        on_failure: Callable[[Hashable, Exception], None] = lambda _key, _error: None,
    ) -> None:
        self._reconcile = reconcile
        self._on_failure = on_failure
        self._workers = workers
        # A key is either queued or being processed, never both; only keys being processed become dirty. So no
        # two workers reconcile the same object at the same time.
        self._ready: asyncio.Queue[Hashable] = asyncio.Queue()
        self._queued: set[Hashable] = set()
        self._processing: set[Hashable] = set()
        self._dirty: set[Hashable] = set()
        self._timers: dict[Hashable, asyncio.TimerHandle] = {}
        self._failures: dict[Hashable, int] = {}

    def __len__(self) -> int:
        """Number of keys that are ready and not being processed."""
        return len(self._queued) + len(self._dirty)

    def add(self, key: Hashable, *, delay: float = 0.0) -> None:
        """Add a key, now or after a delay; the earlier of two times counts."""
        if delay > 0:
            self._set_timer(key, delay)
            return
        self._cancel_timer(key)
        if key in self._processing:
            # A change during the reconciliation may have come after its read: run once more afterwards.
            self._dirty.add(key)
        elif key not in self._queued:
            self._queued.add(key)
            self._ready.put_nowait(key)

    def forget(self, key: Hashable) -> None:
        """Drop the timer and the failure count of a key."""
        self._cancel_timer(key)
        self._failures.pop(key, None)

    async def run(self) -> None:
        """Process keys until cancelled."""
        async with asyncio.TaskGroup() as group:
            for _ in range(self._workers):
                group.create_task(self._run_worker())

    async def _run_worker(self) -> None:
        while True:
            key = await self._ready.get()
            self._queued.discard(key)
            self._processing.add(key)
            try:
                await self._process(key)
            finally:
                self._processing.discard(key)
            if key in self._dirty:
                self._dirty.discard(key)
                self.add(key)

    async def _process(self, key: Hashable) -> None:
        try:
            requeue_after = await self._reconcile(key)
        except Exception as error:  # noqa: BLE001 (a failing key must not affect others)
            failures = min(self._failures.get(key, 0) + 1, _MAX_COUNTED_FAILURES)
            self._failures[key] = failures
            self._on_failure(key, error)
            # If an event has made the key dirty meanwhile, the next run starts immediately and cancels this
            # timer.
            self.add(key, delay=_FAILURE_BACKOFF.delay(failures, 0.0, random_fraction))
            return
        self._failures.pop(key, None)
        if requeue_after is not None:
            self.add(key, delay=requeue_after)

    def _set_timer(self, key: Hashable, delay: float) -> None:
        loop = asyncio.get_running_loop()
        timer = self._timers.get(key)
        if timer is not None and timer.when() <= loop.time() + delay:
            return
        self._cancel_timer(key)
        self._timers[key] = loop.call_later(delay, self._on_timer, key)

    def _on_timer(self, key: Hashable) -> None:
        self._timers.pop(key, None)
        self.add(key)

    def _cancel_timer(self, key: Hashable) -> None:
        timer = self._timers.pop(key, None)
        if timer is not None:
            timer.cancel()
