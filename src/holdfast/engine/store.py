"""Where checkpoints are kept: the interface, and the store that forgets when the process ends.

A store is used by one run at a time (the lock sees to that) and by one thread of it at a time (the runner
does). Not here: SQLite (`sqlite`), and what a record means (`decide`).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

from holdfast.events import Event

if TYPE_CHECKING:
    from holdfast.engine.record import Record, RunRecord

Report = Callable[[Event], None]


class Store(Protocol):
    """Keeps the records of steps by (scope, name), and runs by id. Every write is durable when it returns."""

    @property
    def key(self) -> bytes:
        """The key of this store's digests; known once the store is open."""

    def open(self, report: Report) -> None:
        """Make ready to write, or raise one `StoreError`; damage is put right and reported."""

    def load(self, scope: str) -> dict[str, Record]:
        """All records of one scope."""

    def unfinished(self) -> list[RunRecord]:
        """Runs that never ended."""

    def begin(self, run: RunRecord, died: Sequence[RunRecord] = ()) -> None:
        """Write down that a run has begun, and that earlier ones died."""

    def commit(self, scope: str, records: Mapping[str, Record], forget: Sequence[str] = ()) -> None:
        """Write some records, and drop others, all or nothing."""

    def end(
        self, run: RunRecord, scope: str, records: Mapping[str, Record], forget: Sequence[str] = ()
    ) -> None:
        """Write the last records and how the run ended, all or nothing."""

    def runs(self) -> list[RunRecord]:
        """All runs, the newest first."""

    def drop_runs(self, ids: Iterable[str]) -> None:
        """Forget these runs; records of steps stay."""

    def close(self) -> None:
        """Let go of files; a closed store can be opened again."""


class MemoryStore:
    """A store for as long as the process lives; the probes do the rest."""

    def __init__(self) -> None:
        self.key = os.urandom(32)
        self._records: dict[str, dict[str, Record]] = {}
        self._runs: dict[str, RunRecord] = {}

    def open(self, report: Report) -> None:
        """Nothing to open."""

    def load(self, scope: str) -> dict[str, Record]:
        return dict(self._records.get(scope, {}))

    def unfinished(self) -> list[RunRecord]:
        return [run for run in self._runs.values() if run.outcome == "running"]

    def begin(self, run: RunRecord, died: Sequence[RunRecord] = ()) -> None:
        self._runs.update({one.id: one for one in (*died, run)})

    def commit(self, scope: str, records: Mapping[str, Record], forget: Sequence[str] = ()) -> None:
        kept = self._records.setdefault(scope, {})
        kept.update(records)
        for name in forget:
            kept.pop(name, None)

    def end(
        self, run: RunRecord, scope: str, records: Mapping[str, Record], forget: Sequence[str] = ()
    ) -> None:
        self.commit(scope, records, forget)
        self._runs[run.id] = run

    def runs(self) -> list[RunRecord]:
        return list(reversed(self._runs.values()))

    def drop_runs(self, ids: Iterable[str]) -> None:
        for one in ids:
            self._runs.pop(one, None)

    def close(self) -> None:
        """Nothing to close."""
