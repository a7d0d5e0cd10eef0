"""Ctrl-C: the first one stops cleanly, the second one at once.

After the first, nothing new begins, waits end, a probe on the main thread ends, and an effect in the air
finishes and is recorded. The second raises KeyboardInterrupt wherever the main thread is, except in the
middle of a write and once there is nothing left to stop. Not here: what a run does about it (`runner`).
"""

from __future__ import annotations

import signal
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import FrameType


class Interrupts:
    """Listens for SIGINT while a run is at work; does nothing outside the main thread."""

    def __init__(self, stop: threading.Event) -> None:
        self._stop = stop
        self._count = 0
        self._interruptible = False
        self._writing = False
        self._ending = False
        self._before: Any = None
        self._main = threading.current_thread() is threading.main_thread()

    @property
    def hard(self) -> bool:
        """Whether the user asked to stop at once."""
        return self._count > 1

    def __enter__(self) -> Self:
        if self._main and signal.getsignal(signal.SIGINT) not in {signal.SIG_IGN, None}:
            self._before = signal.signal(signal.SIGINT, self._on_signal)
        return self

    def __exit__(self, *_exc: object) -> None:
        if self._before is not None:
            signal.signal(signal.SIGINT, self._before)
            self._before = None

    def _on_signal(self, _number: int, _frame: FrameType | None) -> None:
        self._count += 1
        self._stop.set()
        if (self.hard or self._interruptible) and not (self._writing or self._ending):
            raise KeyboardInterrupt

    @contextmanager
    def looking(self) -> Iterator[None]:
        """Around what has no effect: the first Ctrl-C ends it at once."""
        if not self._main or threading.current_thread() is not threading.main_thread():
            yield
            return
        self._interruptible = True
        try:
            if self._stop.is_set():
                raise KeyboardInterrupt
            yield
        finally:
            self._interruptible = False

    def begin_write(self) -> None:
        """Even the second Ctrl-C waits from here to `end_write`."""
        self._writing = True

    def end_write(self) -> None:
        self._writing = False
        if self.hard and not self._ending:
            raise KeyboardInterrupt

    def ending(self) -> None:
        """Nothing runs any more and only the last write is left: no Ctrl-C may come between."""
        self._ending = True
