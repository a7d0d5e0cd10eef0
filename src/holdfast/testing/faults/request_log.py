"""Record of requests and injected faults, for assertions.

Headers and bodies are not recorded, because they may contain secrets.
"""

from __future__ import annotations

import itertools
import re
import threading
import time
from collections import Counter, deque
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_WRITE_METHODS = frozenset({"POST", "PUT", "PATCH", "DELETE"})
_WATCH_QUERY = re.compile(r"(?i)(^|&)watch=(true|1|t)(&|$)")
_MAX_RECORDS = 500_000


class RequestRecord(msgspec.Struct, kw_only=True):
    """One request; the proxy sets the later fields while it handles the request.

    `committed` is True if the server answered a write with success, False if it never received or rejected
    the request, and None while that is unknown.
    """

    number: int
    at: float = msgspec.field(default_factory=time.time)
    clock: float = msgspec.field(default_factory=time.monotonic)
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
        """Whether the request can change objects."""
        return self.method in _WRITE_METHODS

    @property
    def is_watch(self) -> bool:
        """Whether the request is a Kubernetes watch."""
        return _WATCH_QUERY.search(self.query) is not None


class RequestLog:
    """The latest records, oldest first; safe to read while requests arrive."""

    def __init__(self, max_records: int = _MAX_RECORDS) -> None:
        self._records: deque[RequestRecord] = deque(maxlen=max_records)
        # The proxy's thread adds records while a test iterates; a deque that changes meanwhile raises
        # RuntimeError.
        self._lock = threading.Lock()
        self._numbers = itertools.count(1)

    def add_record(self, method: str, path: str, query: str = "") -> RequestRecord:
        """Add the record of a request that has just arrived."""
        with self._lock:
            record = RequestRecord(number=next(self._numbers), method=method, path=path, query=query)
            self._records.append(record)
            return record

    def __iter__(self) -> Iterator[RequestRecord]:
        with self._lock:
            return iter(tuple(self._records))

    def __len__(self) -> int:
        return len(self._records)

    def clear(self) -> None:
        """Delete all records; the numbering continues."""
        with self._lock:
            self._records.clear()

    def faults(self) -> Counter[str]:
        """Return how often each fault was injected."""
        return Counter(record.fault for record in self if record.fault is not None)

    def peak_rate(
        self,
        window: float = 1.0,
        *,
        since: float = 0.0,
        until: float = float("inf"),
        where: Callable[[RequestRecord], bool] | None = None,
    ) -> float:
        """Return the highest request rate in any window of that length; bounds are monotonic times."""
        times = [r.clock for r in self if since <= r.clock < until and (where is None or where(r))]
        first, most = 0, 0
        for last, moment in enumerate(times):
            while times[first] <= moment - window:
                first += 1
            most = max(most, last - first + 1)
        return most / window

    def summary(self) -> str:
        """Summarise requests, faults by kind and lost commits in one line."""
        records = tuple(self)
        lost = sum(1 for r in records if r.is_write and r.committed and r.fault is not None)
        kinds = ", ".join(f"{kind} {number}" for kind, number in self.faults().most_common())
        injected = sum(1 for r in records if r.fault is not None)
        return f"{len(records)} requests, {injected} faults ({kinds or 'none'}), {lost} lost commits"
