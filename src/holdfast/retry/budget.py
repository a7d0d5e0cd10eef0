"""A token bucket shared by all callers of one endpoint, so that an outage is not answered with a storm.

Every repeated attempt takes a turn. So does a first attempt, once the endpoint has failed several times in a
row without a success between. A Retry-After closes the gate for everybody. A well endpoint is not slowed.
Not here: sleeping. A budget says how long to wait; the drivers do it.
"""

from __future__ import annotations

import threading

from holdfast.retry import checks

# Failures in a row, over all callers, from which on new calls queue up too.
_STREAK = 5


class Budget:
    """At most `burst` turns at once and `rate` a second after that: in any t seconds at most burst + rate·t.

    A policy with a fixed number of attempts gives up rather than wait longer than `max_wait` for a turn; one
    that goes on until its deadline waits for as long as the deadline allows. A gate that a Retry-After has
    closed is waited for besides.
    """

    def __init__(self, rate: float, *, burst: int = 10, max_wait: float = 30.0) -> None:
        self.rate = checks.seconds("rate", rate)
        self.burst = checks.count("burst", burst)
        self.max_wait = checks.seconds("max_wait", max_wait)
        self._apart = 1.0 / self.rate
        self._slack = (self.burst - 1) * self._apart
        self._lock = threading.Lock()
        self._next = float("-inf")
        self._opens = float("-inf")
        self._streak = 0

    def take(self, now: float, *, longest: float) -> float | None:
        """Reserve the next turn: seconds until it comes; None (and no turn) if that is over `longest`."""
        with self._lock:
            turn = max(now, self._next - self._slack)
            if turn - now > longest:
                return None
            self._next = max(self._next, turn) + self._apart
            return turn - now

    def close(self, until: float) -> None:
        """Let nobody through before `until`: the server asked for it."""
        with self._lock:
            self._opens = max(self._opens, until)

    def closed_for(self, now: float) -> float:
        """Seconds until the gate opens; zero if it is open."""
        return max(0.0, self._opens - now)

    def holds_up(self, now: float) -> bool:
        """Whether a first attempt has anything to wait for. Asked by each call: one look, and no lock."""
        return self._streak >= _STREAK or self._opens > now

    @property
    def ailing(self) -> bool:
        """Whether the endpoint has lately done nothing but fail."""
        return self._streak >= _STREAK

    def failed(self) -> None:
        """Count a failure that may pass."""
        with self._lock:
            self._streak += 1

    def answered(self) -> None:
        """The endpoint is there: it did what was asked, or refused it for good."""
        if self._streak:
            with self._lock:
                self._streak = 0

    def __repr__(self) -> str:
        return f"Budget(rate={self.rate:g}, burst={self.burst})"
