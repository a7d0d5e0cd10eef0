"""Something that goes on beside a test until its block ends."""

import threading
from abc import ABC, abstractmethod


class BackgroundThread(ABC):
    """A thread with an end: `work` looks at `stop` between any two things that it does."""

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
        """What goes on."""
