"""RFC 3339 timestamps as Kubernetes and container engines write them."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

_RFC3339 = re.compile(
    r"(\d{4})(-\d\d-\d\d)[Tt](\d\d:\d\d:\d\d)(?:[.,](\d+))?(?:[Zz]|([+-])(\d\d):(\d\d))", re.ASCII
)
_MIN_TIMESTAMP, _MAX_TIMESTAMP = datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC)
_MICROSECOND_DIGITS = 6


def parse_timestamp(text: str) -> datetime:
    """Parse a timestamp.

    The API server validates `date-time` fields loosely: it accepts a lower-case `z`, offsets of a day or
    more, and the year 0. `datetime.fromisoformat` rejects these; such an object would stop its controller.

    Returns:
        The time in UTC, clipped to the range of `datetime`. Digits below a microsecond are dropped.

    Raises:
        ValueError: the text is not an RFC 3339 timestamp.
    """
    match = _RFC3339.fullmatch(text)
    if match is None:
        raise ValueError(f"{text!r}: not an RFC 3339 date-time")
    year, day, time, fraction, sign, hours, minutes = match.groups()
    if int(year) == 0:
        return _MIN_TIMESTAMP
    microseconds = (fraction or "")[:_MICROSECOND_DIGITS].ljust(_MICROSECOND_DIGITS, "0")
    local = datetime.fromisoformat(f"{year}{day}T{time}.{microseconds}+00:00")
    offset = timedelta(hours=int(hours or 0), minutes=int(minutes or 0))
    try:
        return local + offset if sign == "-" else local - offset
    except OverflowError:
        return _MAX_TIMESTAMP if sign == "-" else _MIN_TIMESTAMP


def parse_optional_timestamp(text: str | None) -> datetime | None:
    """Parse a timestamp from a field that users write, such as an annotation.

    Returns:
        The time, or None if the text is missing or not a timestamp.
    """
    try:
        return parse_timestamp(text) if text else None
    except ValueError:
        return None


def format_timestamp(time: datetime) -> str:
    """Format a time in UTC with whole seconds, as Kubernetes stores `metav1.Time`."""
    return time.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
