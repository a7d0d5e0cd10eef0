"""Moments as the API server takes them, which is more than Python reads: every one of them is some time.

A small `z`, an offset of a day or more and the year 0 pass the server's check of a date-time. Not here: what
a moment is for (lifetime.py, claim_lifetime.py), and what people write elsewhere (idle.py).
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

_FORM = re.compile(
    r"(\d{4})(-\d\d-\d\d)[Tt](\d\d:\d\d:\d\d)(?:[.,](\d+))?(?:[Zz]|([+-])(\d\d):(\d\d))", re.ASCII
)
_FIRST, _LAST = datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC)
_MICROSECONDS = 6


def moment(text: str) -> datetime:
    """A date-time in UTC; what lies before or after all that Python counts is the first or last it does."""
    found = _FORM.fullmatch(text)
    if found is None:
        raise ValueError(f"{text!r} is no date-time as RFC 3339 has it")
    year, day, time, fraction, sign, hours, minutes = found.groups()
    if int(year) == 0:
        return _FIRST
    parts = (fraction or "")[:_MICROSECONDS].ljust(_MICROSECONDS, "0")
    local = datetime.fromisoformat(f"{year}{day}T{time}.{parts}+00:00")
    offset = timedelta(hours=int(hours or 0), minutes=int(minutes or 0))
    try:
        return local + offset if sign == "-" else local - offset
    except OverflowError:
        return _LAST if sign == "-" else _FIRST
