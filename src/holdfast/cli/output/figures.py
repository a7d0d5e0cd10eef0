"""Ages and amounts for people."""

from __future__ import annotations

from datetime import UTC, datetime

from holdfast.api import parse_timestamp

_MINUTE, _HOUR, _DAY = 60, 3600, 86400
_KIBI, _BINARY_UNITS = 1024, ("Ki", "Mi", "Gi", "Ti", "Pi")
_MILLI = 1000
_SHORT = 10
UNKNOWN = "-"
"""What a table shows for a figure that is not known."""


def format_age(created: str | None) -> str:
    """The age in the largest whole unit, such as 3d."""
    if not created:
        return ""
    seconds = int((datetime.now(UTC) - parse_timestamp(created)).total_seconds())
    for unit, letter in ((_DAY, "d"), (_HOUR, "h"), (_MINUTE, "m")):
        if seconds >= unit:
            return f"{seconds // unit}{letter}"
    return f"{max(seconds, 0)}s"


def format_bytes(size: int | None) -> str:
    """An amount of bytes as Kubernetes writes it, such as 1.5Gi."""
    if size is None:
        return UNKNOWN
    amount, unit = float(size), ""
    for larger in _BINARY_UNITS:
        if amount < _KIBI:
            break
        amount, unit = amount / _KIBI, larger
    digits = 1 if amount < _SHORT and not amount.is_integer() else 0
    return f"{amount:.{digits}f}{unit}"


def format_cores(cores: float | None) -> str:
    """CPU cores as Kubernetes writes them, such as 250m or 2."""
    if cores is None:
        return UNKNOWN
    milli = round(cores * _MILLI)
    return str(milli // _MILLI) if milli and milli % _MILLI == 0 else f"{milli}m"
