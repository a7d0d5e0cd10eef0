"""What the proxy saw and did, request by request, for tests to assert on and to print.

Neither headers nor bodies are kept: a log is shown to people and must not hold anybody's secret.
Not here: deciding anything.
"""

from __future__ import annotations

import threading
import time
from collections import Counter, deque
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

WRITES = frozenset({"POST", "PUT", "PATCH", "DELETE"})
_KEPT = 500_000


class Record(msgspec.Struct, kw_only=True):
    """One request; the proxy fills in the later fields while it deals with it.

    `committed` is true when the server answered a write with success, false when it never got the request or
    refused it, and None as long as nobody knows.
    """

    number: int
    at: float
    clock: float
    method: str
    path: str
    query: str = ""
    rule: str = ""
    fault: str | None = None
    forwarded: bool = False
    upstream_status: int | None = None
    status: int | None = None
    committed: bool | None = False
    note: str = ""

    @property
    def is_write(self) -> bool:
        return self.method in WRITES


class RequestLog:
    """The latest records, oldest first; safe to read while requests come in."""

    def __init__(self, kept: int = _KEPT) -> None:
        self._records: deque[Record] = deque(maxlen=kept)
        self._lock = threading.Lock()
        self._next = 1

    def open(self, method: str, path: str, query: str = "") -> Record:
        with self._lock:
            record = Record(
                number=self._next,
                at=time.time(),
                clock=time.monotonic(),
                method=method,
                path=path,
                query=query,
            )
            self._next += 1
            self._records.append(record)
            return record

    def __iter__(self) -> Iterator[Record]:
        with self._lock:
            return iter(tuple(self._records))

    def __len__(self) -> int:
        return len(self._records)

    def clear(self) -> None:
        with self._lock:
            self._records.clear()

    def faults(self) -> Counter[str]:
        """How often each fault was injected."""
        return Counter(record.fault for record in self if record.fault is not None)

    def peak_rate(
        self,
        window: float = 1.0,
        *,
        since: float = 0.0,
        until: float = float("inf"),
        where: Callable[[Record], bool] | None = None,
    ) -> float:
        """The most requests a second in any window of that length; bounds are of the monotonic clock."""
        times = [r.clock for r in self if since <= r.clock < until and (where is None or where(r))]
        first, most = 0, 0
        for last, moment in enumerate(times):
            while times[first] <= moment - window:
                first += 1
            most = max(most, last - first + 1)
        return most / window

    def summary(self) -> str:
        """One line for people: requests, faults by kind, lost commits."""
        records = tuple(self)
        lost = sum(1 for r in records if r.is_write and r.committed and r.fault is not None)
        kinds = ", ".join(f"{kind} {number}" for kind, number in self.faults().most_common())
        injected = sum(1 for r in records if r.fault is not None)
        return (
            f"{len(records)} requests, {injected} faults ({kinds or 'none'}), {lost} committed and not told"
        )
