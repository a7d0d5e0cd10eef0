"""Delays between attempts: constant, linear, exponential and decorrelated.

The cap is applied before the jitter, which only shortens a delay: delays at the cap stay spread out, and none
exceeds it. `retry_decision` adds Retry-After and deadlines.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, TypeAlias

from holdfast.errors import InvalidArgumentError
from holdfast.retry import argument_checks

# Returns a number in [0, 1).
RandomSource: TypeAlias = Callable[[], float]

_random = random.Random()  # noqa: S311 - not used for cryptography


def _reseed_after_fork() -> None:
    """Reseed in forked children, which would otherwise draw the same delays as the parent."""
    import os

    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=_random.seed)


_reseed_after_fork()
random_fraction: RandomSource = _random.random


class Backoff(Protocol):
    """Computes a delay: `attempt` counts from 1, `previous` is the last delay (0 at first)."""

    def delay(self, attempt: int, previous: float, random_source: RandomSource) -> float: ...


@dataclass(frozen=True, slots=True)
class GrowingBackoff:
    """Grows by addition or multiplication up to a cap, then is shortened by up to `jitter` of itself."""

    first: float
    step: float
    factor: float
    cap: float
    jitter: float

    def delay(self, attempt: int, previous: float, random_source: RandomSource) -> float:  # noqa: ARG002 - part of the protocol
        # A policy without a number of attempts may make thousands: the power overflows.
        try:
            grown = self.first * self.factor ** (attempt - 1) + self.step * (attempt - 1)
        except OverflowError:
            grown = self.cap if self.first else 0.0
        full = min(self.cap, grown)
        return full - full * self.jitter * random_source()


@dataclass(frozen=True, slots=True)
class DecorrelatedBackoff:
    """Draws each delay between the first one and three times the previous one, up to the cap."""

    first: float
    cap: float

    def delay(self, attempt: int, previous: float, random_source: RandomSource) -> float:  # noqa: ARG002 - part of the protocol
        # Caps the range, not the drawn value, which would otherwise equal the cap two times out of three.
        top = min(self.cap, max(previous, self.first) * 3)
        return self.first + (top - self.first) * random_source()


def exponential(
    first: float = 0.2, *, cap: float = 10.0, factor: float = 2.0, jitter: float = 0.5
) -> Backoff:
    """Each delay is `factor` times the previous one."""
    argument_checks.check_seconds("first", first, zero=True)
    if argument_checks.check_seconds("factor", factor) < 1:
        raise InvalidArgumentError("factor", f"must be at least 1, not {factor!r}")
    return GrowingBackoff(
        first, 0.0, factor, _check_cap(first, cap), argument_checks.check_fraction("jitter", jitter)
    )


def linear(
    first: float = 0.2, *, step: float | None = None, cap: float = 10.0, jitter: float = 0.5
) -> Backoff:
    """Each delay is `step` longer than the previous one; `step` defaults to the first delay."""
    argument_checks.check_seconds("first", first, zero=True)
    grow = first if step is None else argument_checks.check_seconds("step", step, zero=True)
    return GrowingBackoff(
        first, grow, 1.0, _check_cap(first, cap), argument_checks.check_fraction("jitter", jitter)
    )


def constant(delay: float = 1.0, *, jitter: float = 0.5) -> Backoff:
    """The same delay each time, minus the jitter."""
    argument_checks.check_seconds("delay", delay, zero=True)
    return GrowingBackoff(delay, 0.0, 1.0, delay, argument_checks.check_fraction("jitter", jitter))


def decorrelated(first: float = 0.2, *, cap: float = 10.0) -> Backoff:
    """Random delays between the first and three times the last; spreads many callers best."""
    argument_checks.check_seconds("first", first)
    return DecorrelatedBackoff(first, _check_cap(first, cap))


def _check_cap(first: float, cap: float) -> float:
    if argument_checks.check_seconds("cap", cap, zero=True) < first:
        raise InvalidArgumentError("cap", f"must not be below the first delay ({first!r}), not {cap!r}")
    return cap
