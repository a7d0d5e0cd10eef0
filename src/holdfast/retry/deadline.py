"""One point in time after which nothing more is begun, handed down through every layer.

A deadline is absolute, on the monotonic clock. `with Deadline.after(60):` bounds all that runs inside, at any
depth: a policy in there may set a shorter one, never a longer one. Not here: what happens when it has passed.
"""

from __future__ import annotations

import math
from contextvars import ContextVar, Token
from typing import Self, TypeAlias

from holdfast.errors import ArgumentKindError, DeadlineError
from holdfast.retry import checks, clock

# What bounds the code that runs now: when it began, how many seconds it has, its latest moment, the scope
# around it, and the errors on which policies further in have used up their attempts. A bare tuple, because
# every successful call makes one; computed from only when somebody asks (bench/retry.py).
Scope: TypeAlias = "tuple[float, float, float, Scope | None, list[BaseException]]"

SCOPE: ContextVar[Scope | None] = ContextVar("holdfast_retry_scope", default=None)

# An attempt may swallow any number of errors; only the last ones can be what it fails with.
_SPENT = 16


def expires(scope: Scope | None) -> float:
    """The moment at which the time of a scope is over, the scopes around it included."""
    earliest = math.inf
    while scope is not None:
        began, span, until, scope, _ = scope
        earliest = min(earliest, began + span, until)
    return earliest


def remember_spent(scope: Scope | None, error: BaseException) -> None:
    """Note that a policy inside `scope` has given up on `error`: that many attempts were enough."""
    if scope is not None:
        spent = scope[4]
        spent.append(error)
        del spent[:-_SPENT]


class Deadline:
    """A moment on the monotonic clock; it never changes, so it may be shared by threads and tasks."""

    __slots__ = ("expires",)

    def __init__(self, expires: float) -> None:
        if isinstance(expires, bool) or not isinstance(expires, int | float) or math.isnan(expires):
            raise ArgumentKindError("expires", f"must be a moment on the monotonic clock, not {expires!r}")
        self.expires = expires

    @classmethod
    def after(cls, seconds: float) -> Self:
        """The moment `seconds` from now."""
        return cls(clock.monotonic() + checks.seconds("seconds", seconds, zero=True))

    @property
    def expired(self) -> bool:
        return clock.monotonic() >= self.expires

    def remaining(self) -> float:
        """Seconds left, never below zero."""
        return max(0.0, self.expires - clock.monotonic())

    def clip(self, seconds: float | None) -> float:
        """The shorter of `seconds` and what is left: the timeout to give to a call made now."""
        left = self.remaining()
        return left if seconds is None else min(seconds, left)

    def check(self, what: str) -> None:
        """Raise DeadlineError if the time for `what` is over."""
        if self.expired:
            raise DeadlineError(f"no time left for {what}")

    def __enter__(self) -> Self:
        outer = SCOPE.get()
        spent = [] if outer is None else outer[4]
        token = SCOPE.set((clock.monotonic(), math.inf, self.expires, outer, spent))
        # Kept in the context, not here: one deadline may be entered by many threads and tasks at once.
        _TOKENS.set((token, _TOKENS.get()))
        return self

    def __exit__(self, *_exc: object) -> None:
        entered = _TOKENS.get()
        if entered is not None:
            token, before = entered
            SCOPE.reset(token)
            _TOKENS.set(before)

    def __repr__(self) -> str:
        return f"Deadline({self.remaining():.3f} s left)"


_Entered: TypeAlias = "tuple[Token[Scope | None], _Entered] | None"
_TOKENS: ContextVar[_Entered] = ContextVar("holdfast_retry_tokens", default=None)


def current_deadline() -> Deadline | None:
    """The deadline that bounds the code running now, or None."""
    moment = expires(SCOPE.get())
    return None if math.isinf(moment) else Deadline(moment)
