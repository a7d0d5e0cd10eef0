"""The clock for deadlines, and the only sleep functions of the product.

`testing_mode` replaces both, so that tests of retries take no time and deadlines still expire.
"""

from __future__ import annotations

import threading
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, TypeAlias

from holdfast.retry import argument_checks

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Iterator

StopEvent: TypeAlias = "threading.Event | asyncio.Event"

# A module attribute, which `testing_mode` replaces: the common case is one C call.
monotonic: Callable[[], float] = time.monotonic

# asyncio cannot wait for a threading.Event, and a thread cannot wait for an asyncio.Event.
STOP_POLL_SECONDS = 0.02


class VirtualClock:
    """Real time plus all virtual sleeps."""

    def __init__(self, attempts: int | None) -> None:
        self.attempts = attempts
        self.sleeps: list[float] = []
        self._offset = 0.0
        self._lock = threading.Lock()

    def monotonic(self) -> float:
        return time.monotonic() + self._offset

    def advance(self, seconds: float) -> None:
        """Advance the clock without a sleep, as a slow call does."""
        with self._lock:
            self._offset += seconds

    def sleep(self, seconds: float) -> None:
        with self._lock:
            self._offset += seconds
            self.sleeps.append(seconds)


# Not a context variable: threads that a test has started must not really sleep either.
_virtual_clock: VirtualClock | None = None
_switch_lock = threading.Lock()


@contextmanager
def testing_mode(*, attempts: int | None = None) -> Iterator[VirtualClock]:  # noqa: PT028 - not a test
    """Skip all sleeps in this process: each is recorded in `sleeps` and advances the virtual clock.

    Args:
        attempts: Limits the attempts of every policy, so that a test does not need to script four failures.
    """
    global monotonic, _virtual_clock
    clock = VirtualClock(attempts if attempts is None else argument_checks.check_count("attempts", attempts))
    with _switch_lock:
        before = (monotonic, _virtual_clock)
        monotonic, _virtual_clock = clock.monotonic, clock
    try:
        yield clock
    finally:
        with _switch_lock:
            monotonic, _virtual_clock = before


testing_mode.__test__ = False  # type: ignore[attr-defined]  # pytest would collect it


def effective_attempts(attempts: int | None) -> int | None:
    """The number of attempts, limited by `testing_mode`."""
    limit = None if _virtual_clock is None else _virtual_clock.attempts
    return min((each for each in (attempts, limit) if each is not None), default=None)


def sleep(seconds: float, stop: StopEvent | None = None) -> bool:
    """Sleep until `stop` is set, at most `seconds`; return whether `stop` is set."""
    if stop is not None and stop.is_set():
        return True
    if seconds <= 0:
        return False
    if _virtual_clock is not None:
        _virtual_clock.sleep(seconds)
    elif isinstance(stop, threading.Event):
        return stop.wait(seconds)
    elif stop is None:
        time.sleep(seconds)
    else:
        _sleep_polling(seconds, stop)
    return stop is not None and stop.is_set()


def _sleep_polling(seconds: float, stop: asyncio.Event) -> None:
    until = time.monotonic() + seconds
    while not stop.is_set() and (left := until - time.monotonic()) > 0:
        time.sleep(min(left, STOP_POLL_SECONDS))


async def asleep(seconds: float, stop: StopEvent | None = None) -> bool:
    """`sleep` for asyncio; can be cancelled."""
    import asyncio

    if stop is not None and stop.is_set():
        return True
    if seconds <= 0:
        return False
    if _virtual_clock is not None:
        _virtual_clock.sleep(seconds)
        # Other tasks run here, as they would during a real sleep.
        await asyncio.sleep(0)
    elif stop is None:
        await asyncio.sleep(seconds)
    elif isinstance(stop, asyncio.Event):
        try:
            async with asyncio.timeout(seconds):
                await stop.wait()
        except TimeoutError:
            return False
    else:
        until = time.monotonic() + seconds
        while not stop.is_set() and (left := until - time.monotonic()) > 0:  # noqa: ASYNC110 - threading.Event
            await asyncio.sleep(min(left, STOP_POLL_SECONDS))
    return stop is not None and stop.is_set()
