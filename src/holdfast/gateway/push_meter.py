"""How far a stream of images is, told often enough to be seen to move and seldom enough not to be a flood.

At most ten times a second, and at least once a second while bytes go; in between only a new percent counts.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

_SOONEST, _LATEST = 0.1, 1.0
_ALMOST = 99
"""What was sent still has to be taken in and verified: that is never said to be all."""


class Meter:
    """Tells of bytes out of a total that is a good guess."""

    def __init__(
        self,
        total: int,
        progress: Callable[[str, float | None], None],
        *,
        words: str = "",
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._total = max(1, total)
        self._progress = progress
        self._words = words
        self._clock = clock
        self._sent = 0
        self._told: tuple[float, int, int] | None = None

    def tell(self, sent: int) -> None:
        """So many bytes are on their way."""
        self._sent = sent
        percent, now = self._percent(), self._clock()
        if self._told is not None:
            at, before, bytes_before = self._told
            quiet = now - at
            moved = percent > before or (quiet >= _LATEST and sent > bytes_before)
            if quiet < _SOONEST or not moved:
                return
        self._say(percent, now)

    def end(self) -> None:
        """Tell of the last bytes, which may have come too soon after others."""
        if self._told is not None and self._told[2] != self._sent:
            self._say(self._percent(), self._clock())

    def _percent(self) -> int:
        return min(self._sent * 100 // self._total, _ALMOST)

    def _say(self, percent: int, now: float) -> None:
        self._told = (now, percent, self._sent)
        whole = max(self._sent, self._total)
        self._progress(f"{self._words}{self._sent / 1e6:.0f} of {whole / 1e6:.0f} MB", percent / 100)
