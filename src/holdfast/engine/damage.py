"""Tells of a damaged store: what was lost is named, whenever in a run the damage is found.

Everybody is told in the same words: a terminal, the lines of a command, a log where nobody listens.

Not here: what is done about the damage (`salvage`).
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import msgspec

from holdfast.events import Bus, Event, StoreDamaged

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence


class DamageTeller:
    """The `report` of a store: keeps back until the records are known, then tells at once.

    Told are the bus, or a log where there is none, and the story of the run.
    """

    def __init__(
        self, bus: Bus | None, steps: Sequence[str], story: list[StoreDamaged] | None = None
    ) -> None:
        self._bus = bus
        self._steps = steps
        self._story = [] if story is None else story
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
            self._story.append(event)
        if self._bus is not None:
            self._bus.emit(event)
        elif isinstance(event, StoreDamaged):
            logging.getLogger("holdfast.engine").warning("%s", words(event))


def words(event: StoreDamaged, most: int = 20) -> str:
    """What happened to a store and what was lost, as one sentence without its full stop."""
    said = f"{event.path} was damaged ({event.reason}) and set aside as {event.aside}"
    said += f"; records of {event.kept} steps were kept" if event.kept else "; no record of a step was kept"
    if event.lost:
        more = f" and {len(event.lost) - most} more" if len(event.lost) > most else ""
        said += f"; lost: {', '.join(event.lost[:most])}{more}"
    return said
