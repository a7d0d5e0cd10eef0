"""Decides, from values alone, whether a failed call is made again and after how long.

Pure: no clock, no sleep, no call, no event. Both drivers ask here, and nothing else decides.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias

if TYPE_CHECKING:
    from holdfast.retry.backoff import Backoff, Chance

# A server that asks for more than this is asking for a person, not for a pause.
LONGEST_ASKED = 30.0
# One that asks for less says nothing: obeyed to the letter, it would have us spin.
SHORTEST_ASKED = 0.05
# What everybody who was asked to wait adds to it by chance, so that they do not all come back at once.
_ASKED_JITTER = 0.1
# The least time kept for the last attempt when a delay is cut to fit before the deadline.
_LAST_ATTEMPT = 0.01
# Less than this is no time at all.
_NOTHING = 1e-6

GaveUp: TypeAlias = Literal[
    "no attempts left", "no time left", "the server asks for a longer wait than there is time"
]


@dataclass(frozen=True, slots=True)
class Failure:
    """All that a decision may depend on."""

    attempt: int
    took: float
    """seconds that this attempt lasted"""
    left: float
    """seconds until the deadline, infinite if there is none"""
    previous: float = 0.0
    """the delay before this attempt"""
    asked: float | None = None
    """seconds that the server asks for"""
    squeezed: bool = False
    """a delay was cut already, so this attempt was the last one"""


@dataclass(frozen=True, slots=True)
class Verdict:
    """Wait for `delay` and try again, or give up, and why."""

    delay: float = 0.0
    gave_up: GaveUp | None = None
    squeezed: bool = False


def decide(attempts: int | None, backoff: Backoff, failure: Failure, chance: Chance) -> Verdict:
    """What to do after a failure that may pass."""
    if attempts is not None and failure.attempt >= attempts:
        return Verdict(gave_up="no attempts left")
    if failure.squeezed or failure.left < _NOTHING:
        return Verdict(gave_up="no time left")
    if failure.asked is not None and failure.asked >= SHORTEST_ASKED:
        asked = min(failure.asked, LONGEST_ASKED)
        delay = asked + asked * _ASKED_JITTER * chance()
        if delay >= failure.left:
            # Cutting it short would do just what the server asked not to do.
            return Verdict(gave_up="the server asks for a longer wait than there is time")
        return Verdict(delay)
    delay = max(0.0, backoff.delay(failure.attempt, failure.previous, chance))
    # One attempt of the same length should still fit, or at least half of what is left is kept for it.
    room = failure.left - min(max(failure.took, _LAST_ATTEMPT), failure.left / 2)
    if delay <= room:
        return Verdict(delay)
    return Verdict(max(0.0, room), squeezed=True)
