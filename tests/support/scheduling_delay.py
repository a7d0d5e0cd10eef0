"""How long a busy machine held a test up: what bounds in seconds have to allow for, and no more."""

from __future__ import annotations

import threading
import time


class SchedulingDelayMonitor:
    """For how long the machine held this process up at most: a thread that should wake all the time."""

    def __enter__(self):
        self.max_delay, self._stopped = 0.0, threading.Event()
        self._thread = threading.Thread(target=self._measure, daemon=True)
        self._thread.start()
        return self

    def _measure(self):
        due = time.monotonic() + 0.01
        while not self._stopped.wait(max(0.0, due - time.monotonic())):
            self.max_delay = max(self.max_delay, time.monotonic() - due)
            due = time.monotonic() + 0.01

    def __exit__(self, *_exc):
        self._stopped.set()
        self._thread.join()
