"""Tells of a damaged store: what was lost is named, whenever in a run the damage is found.

Not here: what is done about the damage (`salvage`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from holdfast.events import Bus, Event, StoreDamaged

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence


class DamageTeller:
    """The `report` of a store: keeps back until the records are known, then tells at once."""

    def __init__(self, bus: Bus, steps: Sequence[str]) -> None:
        self._bus = bus
        self._steps = steps
        self._waiting: list[Event] = []
        self._known: Collection[str] | None = None

    def __call__(self, event: Event) -> None:
        if self._known is None:
            self._waiting.append(event)
        else:
            nothing_kept = isinstance(event, StoreDamaged) and not event.kept
            self._tell(event, [name for name in self._steps if nothing_kept and name in self._known])

    def loaded(self, recorded: Collection[str]) -> None:
        """Tell what was lost; where the store cannot name it, all steps that now lack a record."""
        self._known = recorded
        waiting, self._waiting = self._waiting, []
        for event in waiting:
            self._tell(event, [name for name in self._steps if name not in recorded])

    def _tell(self, event: Event, lost: Sequence[str]) -> None:
        if isinstance(event, StoreDamaged):
            event = msgspec.structs.replace(event, lost=tuple(dict.fromkeys((*event.lost, *lost))))
        self._bus.emit(event)
