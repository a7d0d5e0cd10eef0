"""What kopf keeps of each object between two events: nothing, for `on.event` alone needs nothing of it.

By default it copies and compares every object at every event: more work than all of the controller's own.
Loaded by `feed` only, as it loads kopf.
"""

from __future__ import annotations

from typing import Any

import kopf


class NoDifferences(kopf.DiffBaseStorage):
    """No state to compare the next one with."""

    def build(self, **_: Any) -> Any:
        return {}

    def fetch(self, **_: Any) -> None:
        return None

    def store(self, **_: Any) -> None:
        return None


class NoProgress(kopf.ProgressStorage):
    """No handlers that would go on with something."""

    def fetch(self, **_: Any) -> None:
        return None

    def store(self, **_: Any) -> None:
        return None

    def purge(self, **_: Any) -> None:
        return None

    def touch(self, **_: Any) -> None:
        return None

    def clear(self, *, essence: Any) -> Any:
        return essence
