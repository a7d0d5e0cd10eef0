"""When a claim is over: at its shutdown time, or some time after its sandbox finished."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

import msgspec

from holdfast.sandbox.api import FAILED_PODS, Condition
from holdfast.sandbox.lifetime import SOONEST_LOOK
from holdfast.sandbox.moments import moment
from holdfast.sandbox.status import condition

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime


_MOST = 2**31 - 1
"""The API says 32 bits, and no server holds anybody to it: a larger number is no date."""


class Expiry(msgspec.Struct, frozen=True):
    """Whether the time is over, and how long it is until then where that is known."""

    is_over: bool
    seconds_left: float | None = None


def end_is_final(claim: Mapping[str, Any]) -> dict[str, str]:
    """Annotations for the sandbox of a claim whose time counts from its end: a failed pod is that end.

    Made again and again it would never finish for long enough.
    """
    lifecycle = claim["spec"].get("lifecycle") or {}
    return {} if lifecycle.get("ttlSecondsAfterFinished") is None else {FAILED_PODS: "Keep"}


def expiry(claim: Mapping[str, Any], now: datetime) -> Expiry:
    """The earlier of the two ends that a claim may have."""
    lifecycle = claim["spec"].get("lifecycle") or {}
    ends = []
    if lifecycle.get("shutdownTime"):
        ends.append(moment(lifecycle["shutdownTime"]))
    finished = condition(claim, Condition.FINISHED)
    ttl = lifecycle.get("ttlSecondsAfterFinished")
    if ttl is not None and finished.get("status") == "True":
        ends.append(moment(finished["lastTransitionTime"]) + timedelta(seconds=min(ttl, _MOST)))
    if not ends:
        return Expiry(is_over=False)
    left = (min(ends) - now).total_seconds()
    return Expiry(is_over=True) if left <= 0 else Expiry(is_over=False, seconds_left=max(SOONEST_LOOK, left))
