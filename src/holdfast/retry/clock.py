"""The clock that deadlines are read from, and the only sleep in the product.

Both can be replaced by a virtual pair (`testing_mode`), so that tests of retrying code take no time and still
see their deadlines pass. Not here: how long to sleep (`decision`).
"""

from __future__ import annotations

import threading
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, TypeAlias

from holdfast.retry import checks

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Iterator

Stop: TypeAlias = "threading.Event | asyncio.Event"

# Read as `clock.monotonic()` by the drivers: a module attribute, so that the common case is one C call.
monotonic: Callable[[], float] = time.monotonic

# How often a sleeping task looks at an event that belongs to threads; asyncio has no way to wait for one.
_GLANCE = 0.02


class VirtualClock:
    """Time that passes only when somebody sleeps, on top of the time that really passes."""

    def __init__(self, attempts: int | None) -> None:
        self.attempts = attempts
        self.slept: list[float] = []
        self._ahead = 0.0
        self._lock = threading.Lock()

    def monotonic(self) -> float:
        return time.monotonic() + self._ahead

    def advance(self, seconds: float) -> None:
        """Move on by `seconds` without anybody sleeping, as a slow call would."""
        with self._lock:
            self._ahead += seconds

    def sleep(self, seconds: float) -> None:
        with self._lock:
            self._ahead += seconds
            self.slept.append(seconds)


_virtual: VirtualClock | None = None
_switching = threading.Lock()


@contextmanager
def testing_mode(*, attempts: int | None = None) -> Iterator[VirtualClock]:  # noqa: PT028 - not a test
    """Sleep in no time: every delay is skipped, kept in `slept`, and has passed for every deadline.

    `attempts` lowers the number of attempts of every policy, so that a test need not script four failures.
    Holds for the whole process, threads and tasks alike, until the block ends.
    """
    global monotonic, _virtual
    clock = VirtualClock(attempts if attempts is None else checks.count("attempts", attempts))
    with _switching:
        before = (monotonic, _virtual)
        monotonic, _virtual = clock.monotonic, clock
    try:
        yield clock
    finally:
        with _switching:
            monotonic, _virtual = before


testing_mode.__test__ = False  # type: ignore[attr-defined]  # pytest: the name is no test


def attempts_allowed(attempts: int | None) -> int | None:
    """The number of attempts after `testing_mode` had its say."""
    limit = None if _virtual is None else _virtual.attempts
    if limit is None:
        return attempts
    return limit if attempts is None else min(attempts, limit)


def pause(seconds: float, stop: Stop | None = None) -> bool:
    """Sleep; a set `stop` ends it at once. Returns whether `stop` is set. Ctrl-C passes through."""
    if stop is not None and stop.is_set():
        return True
    if seconds <= 0:
        return False
    if _virtual is not None:
        _virtual.sleep(seconds)
    elif isinstance(stop, threading.Event):
        return stop.wait(seconds)
    elif stop is None:
        time.sleep(seconds)
    else:
        _glance(seconds, stop)
    return stop is not None and stop.is_set()


def _glance(seconds: float, stop: asyncio.Event) -> None:
    until = time.monotonic() + seconds
    while not stop.is_set() and (left := until - time.monotonic()) > 0:
        time.sleep(min(left, _GLANCE))


async def apause(seconds: float, stop: Stop | None = None) -> bool:
    """Sleep in a task; cancellation passes through, a set `stop` ends it."""
    import asyncio

    if stop is not None and stop.is_set():
        return True
    if seconds <= 0:
        return False
    if _virtual is not None:
        _virtual.sleep(seconds)
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
        while not stop.is_set() and (left := until - time.monotonic()) > 0:  # noqa: ASYNC110 - a thread's event
            await asyncio.sleep(min(left, _GLANCE))
    return stop is not None and stop.is_set()
