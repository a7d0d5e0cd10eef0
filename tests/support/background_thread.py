"""A thread that runs until the end of a `with` block."""

import threading
from abc import ABC, abstractmethod


class BackgroundThread(ABC):
    """A thread whose `run` checks `stop` between its actions."""

    def __init__(self) -> None:
        self.stop = threading.Event()
        self._thread = threading.Thread(target=self.run)

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self.stop.set()
        self._thread.join()

    @abstractmethod
    def run(self) -> None:
        """The work; returns after `stop` is set."""
