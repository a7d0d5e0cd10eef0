"""How long to wait after the n-th failure: constant, linear, exponential, decorrelated.

The cap is applied first and the jitter after it, downwards: so delays keep apart from each other even when
all of them have reached the cap, and none is ever above it. Not here: Retry-After and deadlines (`decision`).
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, TypeAlias

from holdfast.errors import ArgumentError
from holdfast.retry import checks

# Returns a number in [0, 1).
Chance: TypeAlias = Callable[[], float]

_dice = random.Random()  # noqa: S311 - jitter is no secret


def _reseed_after_fork() -> None:
    """A forked child would otherwise draw the very delays that its parent draws."""
    import os

    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=_dice.seed)


_reseed_after_fork()
chance: Chance = _dice.random


class Backoff(Protocol):
    """Says how long to wait: `attempt` counts from 1, `previous` is the delay before (0 at first)."""

    def delay(self, attempt: int, previous: float, chance: Chance) -> float: ...


@dataclass(frozen=True, slots=True)
class Growing:
    """Grows by addition or multiplication up to a cap, then loses up to `jitter` of itself by chance."""

    first: float
    step: float
    factor: float
    cap: float
    jitter: float

    def delay(self, attempt: int, previous: float, chance: Chance) -> float:  # noqa: ARG002 - the protocol's
        try:
            grown = self.first * self.factor ** (attempt - 1) + self.step * (attempt - 1)
        except OverflowError:
            grown = self.cap if self.first else 0.0
        full = min(self.cap, grown)
        return full - full * self.jitter * chance()


@dataclass(frozen=True, slots=True)
class Decorrelated:
    """Draws each delay between the first one and three times the one before, never above the cap."""

    first: float
    cap: float

    def delay(self, attempt: int, previous: float, chance: Chance) -> float:  # noqa: ARG002 - the protocol's
        # The upper end is capped, not the draw: a capped draw would sit at the cap two times out of three.
        top = min(self.cap, max(previous, self.first) * 3)
        return self.first + (top - self.first) * chance()


def exponential(
    first: float = 0.2, *, cap: float = 10.0, factor: float = 2.0, jitter: float = 0.5
) -> Backoff:
    """Each delay `factor` times the one before."""
    checks.seconds("first", first, zero=True)
    if checks.seconds("factor", factor) < 1:
        raise ArgumentError("factor", f"must be at least 1, not {factor!r}")
    return Growing(first, 0.0, factor, _cap(first, cap), checks.fraction("jitter", jitter))


def linear(
    first: float = 0.2, *, step: float | None = None, cap: float = 10.0, jitter: float = 0.5
) -> Backoff:
    """Each delay `step` longer than the one before (by default by the first delay)."""
    checks.seconds("first", first, zero=True)
    grow = first if step is None else checks.seconds("step", step, zero=True)
    return Growing(first, grow, 1.0, _cap(first, cap), checks.fraction("jitter", jitter))


def constant(delay: float = 1.0, *, jitter: float = 0.5) -> Backoff:
    """Always the same delay, less the jitter."""
    checks.seconds("delay", delay, zero=True)
    return Growing(delay, 0.0, 1.0, delay, checks.fraction("jitter", jitter))


def decorrelated(first: float = 0.2, *, cap: float = 10.0) -> Backoff:
    """Delays drawn between the first and three times the last: spreads many callers best."""
    checks.seconds("first", first)
    return Decorrelated(first, _cap(first, cap))


def _cap(first: float, cap: float) -> float:
    if checks.seconds("cap", cap, zero=True) < first:
        raise ArgumentError("cap", f"must not be below the first delay ({first!r}), not {cap!r}")
    return cap
