"""Keys that have to be looked at: each once however often it was named, and never twice at the same time.

A look that fails is repeated, later each time; a look may ask for another one by itself. Not here: the look.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from holdfast.retry import exponential
from holdfast.retry.backoff import chance

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Hashable

_PAUSES = exponential(0.5, cap=60)
_MOST_FAILURES_COUNTED = 12


class Queue:
    """`run()` looks at keys until it is cancelled; `add()` names one, now or later."""

    def __init__(
        self,
        look: Callable[[Hashable], Awaitable[float | None]],
        *,
        workers: int = 64,
        failed: Callable[[Hashable, Exception], None] | None = None,
    ) -> None:
        self._look = look
        self._failed = failed
        self._workers = workers
        self._ready: asyncio.Queue[Hashable] = asyncio.Queue()
        self._waiting: set[Hashable] = set()
        self._running: set[Hashable] = set()
        self._again: set[Hashable] = set()
        self._timers: dict[Hashable, asyncio.TimerHandle] = {}
        self._failures: dict[Hashable, int] = {}

    def __len__(self) -> int:
        """How many keys wait to be looked at right now."""
        return len(self._waiting) + len(self._again)

    def add(self, key: Hashable, *, delay: float = 0.0) -> None:
        """Have a key looked at; of two times the earlier one counts."""
        if delay > 0:
            self._set_timer(key, delay)
            return
        self._drop_timer(key)
        if key in self._running:
            self._again.add(key)
        elif key not in self._waiting:
            self._waiting.add(key)
            self._ready.put_nowait(key)

    def forget(self, key: Hashable) -> None:
        """Nothing will come of this key any more."""
        self._drop_timer(key)
        self._failures.pop(key, None)

    async def run(self) -> None:
        """Look at keys until cancelled."""
        async with asyncio.TaskGroup() as group:
            for _ in range(self._workers):
                group.create_task(self._work())

    async def _work(self) -> None:
        while True:
            key = await self._ready.get()
            self._waiting.discard(key)
            self._running.add(key)
            try:
                await self._look_once(key)
            finally:
                self._running.discard(key)
            if key in self._again:
                self._again.discard(key)
                self.add(key)

    async def _look_once(self, key: Hashable) -> None:
        try:
            again_in = await self._look(key)
        except Exception as error:  # noqa: BLE001 (one key's trouble is not the others')
            failures = min(self._failures.get(key, 0) + 1, _MOST_FAILURES_COUNTED)
            self._failures[key] = failures
            if self._failed is not None:
                self._failed(key, error)
            self.add(key, delay=_PAUSES.delay(failures, 0.0, chance))
            return
        self._failures.pop(key, None)
        if again_in is not None:
            self.add(key, delay=again_in)

    def _set_timer(self, key: Hashable, delay: float) -> None:
        loop = asyncio.get_running_loop()
        known = self._timers.get(key)
        if known is not None and known.when() <= loop.time() + delay:
            return
        self._drop_timer(key)
        self._timers[key] = loop.call_later(delay, self._due, key)

    def _due(self, key: Hashable) -> None:
        self._timers.pop(key, None)
        self.add(key)

    def _drop_timer(self, key: Hashable) -> None:
        timer = self._timers.pop(key, None)
        if timer is not None:
            timer.cancel()
