"""Reads a Retry-After header: seconds or an HTTP-date, from any text or bytes, without ever raising.

Not here: where the header is found (each boundary says that), and how long is too long (`decision`).
"""

from __future__ import annotations

import re
import time
from typing import Any

# More digits than any sane wait; also what keeps int() from being handed a megabyte of digits.
_SECONDS = re.compile(r"[0-9]{1,12}(?:\.[0-9]{1,12})?")
_MOST = 10**12
_LONGEST_DATE = 64


def parse_retry_after(value: Any, date: Any = None) -> float | None:
    """How many seconds the server asks for, or None if it does not say or makes no sense.

    An HTTP-date is measured against the answer's own `Date` header, so that two clocks that disagree do no
    harm; without a readable one, against this machine's clock. Zero and the past count as nothing said.
    """
    text = _text(value)
    if text is None:
        return None
    if _SECONDS.fullmatch(text):
        asked = float(text)
    else:
        at = _instant(text)
        if at is None:
            return None
        sent = _instant(_text(date))
        asked = at - (time.time() if sent is None else sent)
    return asked if asked > 0 else None


def _text(value: Any) -> str | None:
    if isinstance(value, bytes | bytearray):
        value = bytes(value[: 2 * _LONGEST_DATE]).decode("latin-1")
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        return None
    if isinstance(value, int) and abs(value) > _MOST:
        return None  # Python writes no number of many thousand digits
    return str(value)[: 2 * _LONGEST_DATE].strip() if not isinstance(value, float) else f"{value:.3f}"


def _instant(text: str | None) -> float | None:
    """Seconds since the epoch of an HTTP-date."""
    if text is None or not 0 < len(text) <= _LONGEST_DATE:
        return None
    from email.utils import mktime_tz, parsedate_tz

    try:
        parsed = parsedate_tz(text)
        return None if parsed is None else float(mktime_tz(parsed))
    except (ValueError, OverflowError, TypeError, IndexError):
        return None
