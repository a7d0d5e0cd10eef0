"""Decides whether a failed call is retried and after which delay; parses Retry-After headers.

Pure: no clock (except for HTTP dates), no sleep, no call.
"""

from __future__ import annotations

import re
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

if TYPE_CHECKING:
    from holdfast.retry.backoff import Backoff, RandomSource


# Bounds the number of digits that float() and int() receive.
_SECONDS_PATTERN = re.compile(r"[0-9]{1,12}(?:\.[0-9]{1,12})?")
_MAX_SECONDS = 10**12
_MAX_DATE_LENGTH = 64


def parse_retry_after(value: Any, date: Any = None) -> float | None:
    """Parse a Retry-After header, seconds or an HTTP date; None if it is absent or invalid. Never raises.

    An HTTP date is relative to the `Date` header of the response, if that is valid, so that clock skew does
    not matter. Zero and dates in the past return None.
    """
    text = _as_text(value)
    if text is None:
        return None
    if _SECONDS_PATTERN.fullmatch(text):
        seconds = float(text)
    else:
        at = _parse_http_date(text)
        if at is None:
            return None
        sent = _parse_http_date(_as_text(date))
        seconds = at - (time.time() if sent is None else sent)
    return seconds if seconds > 0 else None


def _as_text(value: Any) -> str | None:
    if isinstance(value, bytes | bytearray):
        value = bytes(value[: 2 * _MAX_DATE_LENGTH]).decode("latin-1")
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        return None
    if isinstance(value, int) and abs(value) > _MAX_SECONDS:
        return None  # str() raises for huge integers
    return str(value)[: 2 * _MAX_DATE_LENGTH].strip() if not isinstance(value, float) else f"{value:.3f}"


def _parse_http_date(text: str | None) -> float | None:
    """Parse an HTTP date as seconds since the epoch."""
    if text is None or not 0 < len(text) <= _MAX_DATE_LENGTH:
        return None
    from email.utils import mktime_tz, parsedate_tz

    try:
        parsed = parsedate_tz(text)
        return None if parsed is None else float(mktime_tz(parsed))
    except (ValueError, OverflowError, TypeError, IndexError):
        return None


# Longer requested waits are clamped.
MAX_RETRY_AFTER = 30.0
# Shorter requested waits are ignored: the backoff applies instead.
MIN_RETRY_AFTER = 0.05
# Random extra wait, so that blocked callers do not return simultaneously.
_RETRY_AFTER_JITTER = 0.1
# Minimum time for the last attempt when a delay is shortened to the deadline.
_MIN_LAST_ATTEMPT = 0.01
_EPSILON = 1e-6

GiveUpReason: TypeAlias = Literal[
    "no attempts left", "no time left", "the server requested a wait beyond the deadline"
]


@dataclass(frozen=True, slots=True)
class FailedAttempt:
    """The input of a decision."""

    attempt: int
    duration: float
    """seconds"""
    time_left: float
    """seconds until the deadline; infinite if there is none"""
    previous_delay: float = 0.0
    """the delay before this attempt"""
    retry_after: float | None = None
    """seconds that the server requested"""
    was_shortened: bool = False
    """the last delay was shortened, so this attempt was the last one"""


@dataclass(frozen=True, slots=True)
class RetryDecision:
    """Retry after `delay`, or give up for a reason."""

    delay: float = 0.0
    give_up_reason: GiveUpReason | None = None
    was_shortened: bool = False


def decide_retry(
    attempts: int | None, backoff: Backoff, failure: FailedAttempt, random_source: RandomSource
) -> RetryDecision:
    """Decide about a transient failure."""
    if attempts is not None and failure.attempt >= attempts:
        return RetryDecision(give_up_reason="no attempts left")
    if failure.was_shortened or failure.time_left < _EPSILON:
        return RetryDecision(give_up_reason="no time left")
    if failure.retry_after is not None and failure.retry_after >= MIN_RETRY_AFTER:
        requested = min(failure.retry_after, MAX_RETRY_AFTER)
        delay = requested + requested * _RETRY_AFTER_JITTER * random_source()
        if delay >= failure.time_left:
            # A shorter wait would ignore the server's request.
            return RetryDecision(give_up_reason="the server requested a wait beyond the deadline")
        return RetryDecision(delay)
    delay = max(0.0, backoff.delay(failure.attempt, failure.previous_delay, random_source))
    # Reserve time for one attempt of the same duration, or at least half of the time left.
    available = failure.time_left - min(max(failure.duration, _MIN_LAST_ATTEMPT), failure.time_left / 2)
    if delay <= available:
        return RetryDecision(delay)
    return RetryDecision(max(0.0, available), was_shortened=True)
