"""How long a pool waits before it replaces sandboxes that ended: longer each time, for each template.

What ends as soon as it runs would else be made and deleted without a pause. Not here: what has ended.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from holdfast.retry import exponential

if TYPE_CHECKING:
    from datetime import datetime

_PAUSES = exponential(2.0, cap=300.0)
_FORGOTTEN_AFTER = 900.0
_MOST_KNOWN = 1024


class _Streak(NamedTuple):
    replaced: int
    last: datetime


class Pauses:
    """How often each pool has replaced what ended; the first time is at once."""

    def __init__(self) -> None:
        self._streaks: dict[tuple[str, str], _Streak] = {}

    def left(self, pool: str, template: str, now: datetime) -> float:
        """Seconds until what ended may be replaced; 0 when that is now."""
        streak = self._streaks.get((pool, template))
        if streak is None:
            return 0.0
        since = (now - streak.last).total_seconds()
        return max(0.0, _PAUSES.delay(streak.replaced, 0.0, lambda: 0.0) - since)

    def replaced(self, pool: str, template: str, now: datetime) -> None:
        """Note that it was done; one that has not happened for long is the first one again."""
        known = self._streaks.pop((pool, template), None)
        goes_on = known is not None and (now - known.last).total_seconds() < _FORGOTTEN_AFTER
        self._streaks[pool, template] = _Streak((known.replaced if known and goes_on else 0) + 1, now)
        if len(self._streaks) > _MOST_KNOWN:
            del self._streaks[next(iter(self._streaks))]
