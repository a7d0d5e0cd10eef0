"""Exponential backoff for patches that another actor reverts, such as a webhook or a second controller."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import msgspec

from holdfast.controller.executor import REQUEUE_SOON
from holdfast.retry import exponential
from holdfast.retry.backoff import random_fraction
from holdfast.sandbox import Patch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from holdfast.sandbox import Action

_MAX_TRACKED = 4096
_BACKOFF = exponential(REQUEUE_SOON, cap=10.0, jitter=0.0)
"""The other actor may be fixed meanwhile: users must not wait for minutes then."""
_RESET_AFTER = 60.0
"""A patch that lasted this long is applied immediately when it is needed again."""


class _AppliedPatch(msgspec.Struct, frozen=True):
    patch: dict[str, Any]
    attempts: int
    applied_at: float


class RevertBackoff:
    """Tracks the last patch of each object by uid; only an identical patch has to wait."""

    def __init__(self, clock: Callable[[], float] = lambda: asyncio.get_running_loop().time()) -> None:
        self._clock = clock
        self._applied: dict[str, _AppliedPatch] = {}

    def split_due(self, actions: Iterable[Action]) -> tuple[list[Action], float | None]:
        """Split actions into those due now and the seconds until the first of the others is due."""
        due: list[Action] = []
        delays: list[float] = []
        for action in actions:
            delay = self._remaining_seconds(action)
            if delay > 0:
                delays.append(delay)
            else:
                due.append(action)
        return due, min(delays, default=None)

    def record_applied(self, actions: Iterable[Action]) -> None:
        """Record actions that the API server accepted."""
        for action in actions:
            if isinstance(action, Patch):
                last = self._last_identical(action)
                if len(self._applied) > _MAX_TRACKED:
                    self._applied.clear()
                attempts = last.attempts + 1 if last else 1
                self._applied[action.target.uid] = _AppliedPatch(action.patch, attempts, self._clock())

    def _remaining_seconds(self, action: Action) -> float:
        last = self._last_identical(action) if isinstance(action, Patch) else None
        if last is None:
            return 0.0
        delay = _BACKOFF.delay(last.attempts, 0.0, random_fraction)
        return last.applied_at + delay - self._clock()

    def _last_identical(self, action: Patch) -> _AppliedPatch | None:
        last = self._applied.get(action.target.uid)
        if last is None or last.patch != action.patch or self._clock() - last.applied_at >= _RESET_AFTER:
            return None
        return last
