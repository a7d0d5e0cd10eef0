"""Ctrl-C: the first one stops cleanly, the second one at once.

After the first, nothing new begins, waits end, a probe ends (at once on the main thread, else when it
answers), and an effect in the air finishes and is recorded. The second raises KeyboardInterrupt wherever the
main thread is, except in the middle of a write and once there is nothing left to stop. Not here: what a run
does about it (`runner`).
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

    @property
    def by(self) -> str:
        """What a run was stopped by, in words: the keyboard, or somebody who set the event."""
        return "on request" if self._stop.is_set() and not self._count else "by Ctrl-C"

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
        if self._on_main():
            with self._set(interruptible=True):
                if self._stop.is_set():
                    raise KeyboardInterrupt
                yield
        else:
            yield

    @contextmanager
    def acting(self) -> Iterator[None]:
        """Around an effect in the middle of a look: the first Ctrl-C lets it finish."""
        if self._on_main():
            with self._set(interruptible=False):
                yield
        else:
            yield

    @contextmanager
    def _set(self, *, interruptible: bool) -> Iterator[None]:
        before, self._interruptible = self._interruptible, interruptible
        try:
            yield
        finally:
            self._interruptible = before

    def _on_main(self) -> bool:
        return self._main and threading.current_thread() is threading.main_thread()

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
