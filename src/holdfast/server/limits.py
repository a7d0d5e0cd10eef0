"""How much one client may ask at once: requests a second, and streams that are open at the same time.

A client is one certificate. Pure but for the clock that it is given; used from one event loop only. Not here:
how a refusal is told (throttle.py).
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from collections.abc import Callable

_MOST_REMEMBERED = 1024


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """What each client is given."""

    requests_per_second: float = 50.0
    burst: int = 100
    """requests at once after a pause"""
    streams: int = 64
    """execs, forwards, logs, events and copies that are open at the same time"""


class _Usage:
    __slots__ = ("seen", "streams", "tokens")

    def __init__(self, tokens: float, seen: float) -> None:
        self.tokens, self.seen, self.streams = tokens, seen, 0


class Gate:
    """Counts what each client does."""

    def __init__(self, limits: Limits, clock: Callable[[], float] = time.monotonic) -> None:
        self._limits, self._clock = limits, clock
        self._clients: dict[str, _Usage] = {}

    def request(self, client: str) -> float:
        """Take one request; 0 if it is let through, else the seconds after which it would be."""
        usage = self._usage(client)
        if usage.tokens >= 1.0:
            usage.tokens -= 1.0
            return 0.0
        return (1.0 - usage.tokens) / self._limits.requests_per_second

    def open_stream(self, client: str) -> bool:
        """Take one stream if there is one left; whoever got it gives it back with `close_stream`."""
        usage = self._usage(client)
        if usage.streams >= self._limits.streams:
            return False
        usage.streams += 1
        return True

    def close_stream(self, client: str) -> None:
        """Give one back."""
        usage = self._clients.get(client)
        if usage is not None and usage.streams > 0:
            usage.streams -= 1

    def _usage(self, client: str) -> _Usage:
        now, most = self._clock(), float(self._limits.burst)
        usage = self._clients.get(client)
        if usage is None:
            self._forget(now)
            usage = self._clients[client] = _Usage(most, now)
        usage.tokens = min(most, usage.tokens + (now - usage.seen) * self._limits.requests_per_second)
        usage.seen = now
        return usage

    def _forget(self, now: float) -> None:
        """Let go of clients that have nothing open and would be at their full allowance again."""
        if len(self._clients) < _MOST_REMEMBERED:
            return
        pause = self._limits.burst / self._limits.requests_per_second
        idle = [key for key, each in self._clients.items() if not each.streams and now - each.seen >= pause]
        for key in idle:
            del self._clients[key]
