"""A token bucket shared by all callers of one endpoint, so that an outage does not cause a retry storm.

Every retry takes a token. So does a first attempt after several consecutive failures of the endpoint. A
Retry-After blocks all callers. The budget computes waits; `runner` sleeps.
"""

from __future__ import annotations

import os
import threading

from holdfast.retry import argument_checks

# After this many consecutive failures, over all callers, first attempts need a token too.
_FAILING_THRESHOLD = 5

# One lock for all budgets: it is held for a few instructions.
_lock = threading.Lock()


def _reset_after_fork() -> None:
    """Replace the lock in a forked child: a thread of the parent may have held it."""
    global _lock  # noqa: PLW0603
    _lock = threading.Lock()


os.register_at_fork(after_in_child=_reset_after_fork)


class Budget:
    """A token bucket: at most burst + rate·t retries in any t seconds.

    A policy with a fixed number of attempts gives up when it would wait longer than `max_wait` for a token; a
    policy without one waits until its deadline. Waiting for a Retry-After is not part of `max_wait`.
    """

    def __init__(self, rate: float, *, burst: int = 10, max_wait: float = 30.0) -> None:
        self.rate = argument_checks.check_seconds("rate", rate)
        self.burst = argument_checks.check_count("burst", burst)
        self.max_wait = argument_checks.check_seconds("max_wait", max_wait)
        # Generic cell rate algorithm: the time of the next token replaces a token count and its refill.
        # Callers may be ahead of the rate by `_burst_window`.
        self._interval = 1.0 / self.rate
        self._burst_window = (self.burst - 1) * self._interval
        self._next_token = float("-inf")
        # Read without the lock by every call. A stale value is harmless: it affects only the calls that start
        # at this moment.
        self._blocked_until = float("-inf")
        self.consecutive_failures = 0

    def reserve(self, now: float, *, max_wait: float) -> float | None:
        """Reserve a token and return the seconds until it is available; None if that exceeds `max_wait`."""
        # Reserved before the wait: concurrent callers get successive times, and none wakes without a token.
        with _lock:
            available = max(now, self._next_token - self._burst_window)
            if available - now > max_wait:
                return None
            self._next_token = max(self._next_token, available) + self._interval
            return available - now

    def block_until(self, moment: float) -> None:
        """Block all callers until a moment that the server has requested."""
        with _lock:
            self._blocked_until = max(self._blocked_until, moment)

    def blocked_for(self, now: float) -> float:
        """Seconds until callers are no longer blocked."""
        return max(0.0, self._blocked_until - now)

    def must_wait(self, now: float) -> bool:
        """Whether a first attempt has to wait; lock-free, since each call asks."""
        return self.consecutive_failures >= _FAILING_THRESHOLD or self._blocked_until > now

    @property
    def is_failing(self) -> bool:
        """Whether the last calls of all callers have failed."""
        return self.consecutive_failures >= _FAILING_THRESHOLD

    def record_failure(self) -> None:
        """Count a transient failure."""
        with _lock:
            self.consecutive_failures += 1

    def record_success(self) -> None:
        """Reset the failure count: the endpoint succeeded, or rejected a call permanently."""
        with _lock:
            self.consecutive_failures = 0

    def __repr__(self) -> str:
        return f"Budget(rate={self.rate:g}, burst={self.burst})"
