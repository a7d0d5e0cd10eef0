"""An absolute point in time, on the monotonic clock, that bounds all code inside `with Deadline.after(60):`.

The deadline applies at any depth: policies inside may set an earlier one, never a later one.
"""

from __future__ import annotations

import math
from contextvars import ContextVar, Token
from typing import Self, TypeAlias

from holdfast.errors import ArgumentTypeError, DeadlineExceededError
from holdfast.retry import argument_checks, clock

# The time bounds of the running code: start, total timeout, expiry, enclosing scope, and the errors for which
# inner policies have exhausted their attempts. A tuple, because every successful call creates one; the expiry
# is computed on demand (bench/retry.py).
Scope: TypeAlias = "tuple[float, float, float, Scope | None, list[BaseException]]"

CURRENT_SCOPE: ContextVar[Scope | None] = ContextVar("holdfast_retry_scope", default=None)

# An attempt may handle any number of errors; it can only fail with one of the last.
_MAX_EXHAUSTED = 16


def current_expiry(scope: Scope | None = None) -> float:
    """When a scope and all enclosing ones expire, by default the current one; infinite without a deadline."""
    scope = scope or CURRENT_SCOPE.get()
    earliest = math.inf
    while scope is not None:
        began, total_timeout, expires, scope, _ = scope
        earliest = min(earliest, began + total_timeout, expires)
    return earliest


def record_exhausted(scope: Scope | None, error: BaseException) -> None:
    """Record that a policy inside `scope` has exhausted its attempts on `error`."""
    if scope is not None:
        exhausted = scope[4]
        exhausted.append(error)
        del exhausted[:-_MAX_EXHAUSTED]


class Deadline:
    """A point in time on the monotonic clock; immutable, so threads and tasks can share it."""

    __slots__ = ("expires",)

    def __init__(self, expires: float) -> None:
        if isinstance(expires, bool) or not isinstance(expires, int | float) or math.isnan(expires):
            raise ArgumentTypeError("expires", f"must be a time on the monotonic clock, not {expires!r}")
        self.expires = expires

    @classmethod
    def after(cls, seconds: float) -> Self:
        """The deadline `seconds` from now."""
        return cls(clock.monotonic() + argument_checks.check_seconds("seconds", seconds, zero=True))

    def remaining(self) -> float:
        """Seconds left, never below zero."""
        return max(0.0, self.expires - clock.monotonic())

    def clip(self, seconds: float | None) -> float:
        """The shorter of `seconds` and the time left: the timeout for a call made now."""
        left = self.remaining()
        return left if seconds is None else min(seconds, left)

    def check(self, what: str) -> None:
        """Raise DeadlineExceededError if the deadline has passed."""
        if clock.monotonic() >= self.expires:
            raise DeadlineExceededError(f"no time left for {what}")

    def __enter__(self) -> Self:
        outer = CURRENT_SCOPE.get()
        # Shared with the enclosing scope: a deadline between two policies must not hide the exhausted
        # errors of the inner policy from the outer one.
        exhausted = [] if outer is None else outer[4]
        token = CURRENT_SCOPE.set((clock.monotonic(), math.inf, self.expires, outer, exhausted))
        # Stored in the context, not in the object: many threads and tasks may enter one deadline.
        _TOKENS.set((token, _TOKENS.get()))
        return self

    def __exit__(self, *_exc: object) -> None:
        entered = _TOKENS.get()
        if entered is not None:
            token, before = entered
            CURRENT_SCOPE.reset(token)
            _TOKENS.set(before)

    def __repr__(self) -> str:
        return f"Deadline({self.remaining():.3f} s left)"


_TokenStack: TypeAlias = "tuple[Token[Scope | None], _TokenStack] | None"
_TOKENS: ContextVar[_TokenStack] = ContextVar("holdfast_retry_tokens", default=None)


def current_deadline() -> Deadline | None:
    """The deadline of the running code, or None."""
    expires = current_expiry()
    return None if math.isinf(expires) else Deadline(expires)
