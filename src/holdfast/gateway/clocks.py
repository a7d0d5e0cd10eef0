"""Two clocks side by side: this machine's, and the one that the gateway's Kubernetes goes by.

What has expired by one clock alone may be good, so nothing is thrown away on the word of one that differs
from the other. Where both are the same clock (an engine on this machine), there is no second witness.
"""

from __future__ import annotations

import datetime as dt
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING

from holdfast.errors import PermanentError
from holdfast.gateway.glances import ask_kubernetes

if TYPE_CHECKING:
    from holdfast.gateway.work import Work

MOST_SECONDS = 300.0
"""Two clocks that differ by more than this do not agree on the time."""

_DAY, _HOUR, _MINUTE = 86400, 3600, 60


def now() -> dt.datetime:
    """The time by this machine's clock."""
    return dt.datetime.now(dt.UTC)


def ahead_of_us(work: Work) -> float:
    """By how many seconds the clock of the gateway's API server is ahead of this machine's."""
    before = now().timestamp()
    answer = ask_kubernetes(work, "/version")
    return skew(answer.date, before, now().timestamp())


def refuse_other_time(name: str, seconds: float) -> None:
    """Stop where the gateway and this machine do not agree on the time; one of them is wrong."""
    if abs(seconds) <= MOST_SECONDS:
        return
    way = "behind" if seconds > 0 else "ahead of"
    raise PermanentError(
        f"a clock is off: this machine's says {now():%Y-%m-%d %H:%M} UTC, {in_words(abs(seconds))} {way} "
        f"that of gateway {name}; nothing was replaced",
        hint="Set the wrong clock right, this machine's or that of the gateway's host, then run the same "
        "command again.",
    )


def in_words(seconds: float) -> str:
    """A length of time in its biggest unit."""
    for unit, words in ((_DAY, "days"), (_HOUR, "hours"), (_MINUTE, "minutes")):
        if seconds >= 2 * unit:
            return f"{seconds / unit:.0f} {words}"
    return f"{seconds:.0f} seconds"


def skew(said: str, before: float, after: float) -> float:
    """By how many seconds a clock is ahead of ours, taking into account how long its answer took."""
    there = _moment(said)
    if there is None:
        return 0.0
    if there < before - 1:  # a second is the grain of the Date header
        return there - before
    return max(0.0, there - after)


def _moment(said: str) -> float | None:
    try:
        if "," in said:
            return parsedate_to_datetime(said).timestamp()
        whole, dot, rest = said.partition(".")
        zone = "" if not dot else "Z" if rest.endswith("Z") else rest[-6:]
        parsed = dt.datetime.fromisoformat(whole + zone)
    except (ValueError, TypeError, OverflowError):
        return None
    return (parsed if parsed.tzinfo else parsed.replace(tzinfo=dt.UTC)).timestamp()
