"""Durations and times as text."""

from __future__ import annotations

import time

# Bounds of the forms, in seconds: from here on, rounding would give the first value of the next form.
_MAX_MICROSECONDS = 0.0005
_MAX_MILLISECONDS = 0.9995
_MAX_HUNDREDTHS = 9.995
_MAX_SECONDS = 59.95
_HOUR_SECONDS = 3600
_MIN_DIFFERENCE = 0.0005


def format_seconds(seconds: float, *, exact: bool = False) -> str:
    """Return a duration such as `240 ms`, `3.42 s`, `1 min 05 s` or `2 h 10 min`.

    Args:
        seconds: the duration.
        exact: leave out zeros at the end, for round numbers.
    """
    if seconds < _MAX_SECONDS:
        return _format_short(seconds, exact=exact)
    whole = round(seconds)
    unit, part = (3600, "h"), (60, "min")
    if whole < _HOUR_SECONDS:
        unit, part = (60, "min"), (1, "s")
    rest = whole % unit[0] // part[0]
    return f"{whole // unit[0]} {unit[1]}" + (f" {rest:02} {part[1]}" if rest or not exact else "")


def _format_short(seconds: float, *, exact: bool) -> str:
    if seconds < _MAX_MICROSECONDS:
        return "0" if exact and not seconds else f"{seconds * 1e6:.0f} µs" if seconds else "0 ms"
    if seconds < _MAX_MILLISECONDS:
        return f"{seconds * 1000:.0f} ms"
    text = f"{seconds:.2f}" if seconds < _MAX_HUNDREDTHS else f"{seconds:.1f}"
    return f"{text.rstrip('0').rstrip('.') if exact else text} s"


def format_difference(seconds: float) -> str:
    """Return a difference of durations with its sign; `±0` if it is too small to matter."""
    if abs(seconds) < _MIN_DIFFERENCE:
        return "±0"
    return f"{'+' if seconds > 0 else '-'}{format_seconds(abs(seconds))}"


def format_time(timestamp: float) -> str:
    """Return a time with its zone, in the time zone of this machine."""
    try:
        return time.strftime("%Y-%m-%d %H:%M:%S %z", time.localtime(timestamp))
    except (OverflowError, ValueError, OSError):  # a record with an impossible time
        return f"{timestamp:g} s +0000"


def count(number: int, noun: str) -> str:
    """Return a number with its noun, such as `1 step` and `2 steps`."""
    plural = f"{noun[:-1]}ies" if noun.endswith("y") else f"{noun}s"
    return f"{number:,} {noun if number == 1 else plural}"
