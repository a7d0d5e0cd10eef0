"""An event loop whose clock jumps to the next timer instead of waiting.

For code that waits only through asyncio and `holdfast.retry`: not for code that uses sockets or threads.
"""

from __future__ import annotations

import asyncio
import selectors
from datetime import UTC, datetime, timedelta

import pytest

from holdfast.retry import clock

START = datetime(2026, 1, 1, 12, tzinfo=UTC)


class _InstantSelector(selectors.DefaultSelector):
    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0

    def select(self, timeout=None):
        if timeout is None:
            raise RuntimeError("deadlock: no task is ready and no timer is set")
        self.now += max(0.0, timeout)
        return super().select(0)


class VirtualTimeLoop(asyncio.SelectorEventLoop):
    def __init__(self) -> None:
        self._instant_selector = _InstantSelector()
        super().__init__(self._instant_selector)

    def time(self) -> float:
        return self._instant_selector.now


def run_virtual(coroutine):
    """Run a coroutine like `asyncio.run`, without waiting for its timers."""
    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner, pytest.MonkeyPatch.context() as patch:
        patch.setattr(clock, "monotonic", runner.get_loop().time)
        return runner.run(coroutine)


def virtual_now() -> datetime:
    """The time of day of the running virtual loop."""
    return START + timedelta(seconds=asyncio.get_running_loop().time())
