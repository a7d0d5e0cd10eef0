"""Changes that somebody undoes each time: an admission webhook, or a second controller.

They are asked for again, later each time, for whoever undoes them may be mended. Not here: what is asked for.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import msgspec

from holdfast.controller.hands import SOON
from holdfast.sandbox.actions import Patch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from holdfast.sandbox.actions import Action

_MOST_KNOWN = 4096
_MOST_DOUBLED = 8
_LONGEST = 10.0
"""The longest pause: whoever undoes it may be mended, and then nobody should wait for minutes."""
_CALM = 60.0
"""What was not undone for so many seconds is asked for at once when it has to be."""


class _Asked(msgspec.Struct, frozen=True):
    patch: dict[str, Any]
    times: int
    at: float


class Undone:
    """Remembers the last patch of each object, by uid: only one that has to be repeated waits."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._asked: dict[str, _Asked] = {}

    def due(self, actions: Iterable[Action]) -> tuple[list[Action], float | None]:
        """What is to be done now, and the seconds until the first of the rest is."""
        now: list[Action] = []
        later: list[float] = []
        for action in actions:
            left = self._seconds_left(action)
            if left > 0:
                later.append(left)
            else:
                now.append(action)
        return now, min(later, default=None)

    def done(self, actions: Iterable[Action]) -> None:
        """The server took these."""
        for action in actions:
            if isinstance(action, Patch):
                known = self._known(action)
                if len(self._asked) > _MOST_KNOWN:
                    self._asked.clear()
                times = known.times + 1 if known else 1
                self._asked[action.target.uid] = _Asked(action.patch, times, self._clock())

    def _seconds_left(self, action: Action) -> float:
        known = self._known(action) if isinstance(action, Patch) else None
        if known is None:
            return 0.0
        pause = min(_LONGEST, SOON * 2.0 ** min(known.times - 1, _MOST_DOUBLED))
        return known.at + pause - self._clock()

    def _known(self, action: Patch) -> _Asked | None:
        known = self._asked.get(action.target.uid)
        same = known is not None and known.patch == action.patch and self._clock() - known.at < _CALM
        return known if same else None
