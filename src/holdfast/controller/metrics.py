"""Counts and times of the controller, as Prometheus reads them: no library, a few numbers and their text.

Not here: serving the text (health.py).
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)


class Counter:
    """Something that only grows, for each value of its labels."""

    kind = "counter"

    def __init__(self, name: str, words: str, *labels: str) -> None:
        self.name, self.words, self._labels = name, words, labels
        self._counts: dict[tuple[str, ...], float] = defaultdict(float)

    def add(self, *values: str, amount: float = 1.0) -> None:
        self._counts[values] += amount

    def lines(self) -> Iterator[str]:
        for values, count in sorted(self._counts.items()):
            yield f"{self.name}{_braces(zip(self._labels, values, strict=True))} {count:g}"


class Gauge:
    """Something that is asked for when somebody wants to know."""

    kind = "gauge"

    def __init__(self, name: str, words: str, ask: Callable[[], float]) -> None:
        self.name, self.words, self._ask = name, words, ask

    def lines(self) -> Iterator[str]:
        yield f"{self.name} {self._ask():g}"


class Histogram:
    """How long things took."""

    kind = "histogram"

    def __init__(self, name: str, words: str, *labels: str) -> None:
        self.name, self.words, self._labels = name, words, labels
        self._counts: dict[tuple[str, ...], list[int]] = {}
        self._sums: dict[tuple[str, ...], float] = defaultdict(float)

    def observe(self, seconds: float, *values: str) -> None:
        counts = self._counts.setdefault(values, [0] * (len(_BUCKETS) + 1))
        counts[next((n for n, edge in enumerate(_BUCKETS) if seconds <= edge), len(_BUCKETS))] += 1
        self._sums[values] += seconds

    def lines(self) -> Iterator[str]:
        for values, counts in sorted(self._counts.items()):
            labels = list(zip(self._labels, values, strict=True))
            total = 0
            for edge, count in zip((*(f"{edge:g}" for edge in _BUCKETS), "+Inf"), counts, strict=True):
                total += count
                yield f"{self.name}_bucket{_braces([*labels, ('le', edge)])} {total}"
            yield f"{self.name}_sum{_braces(labels)} {self._sums[values]:.6f}"
            yield f"{self.name}_count{_braces(labels)} {total}"


class Metrics:
    """Everything that the controller counts."""

    def __init__(self) -> None:
        self.events = Counter("holdfast_controller_events_total", "Changes that watches told of.", "kind")
        self.looks = Counter("holdfast_controller_looks_total", "Looks at objects.", "kind", "result")
        self.writes = Counter("holdfast_controller_writes_total", "Writes to the API server.", "verb")
        self.swept = Counter(
            "holdfast_controller_swept_total", "What only a list told of, and no watch.", "kind", "what"
        )
        self.waited = Histogram(
            "holdfast_controller_wait_seconds", "From a change to the look at it.", "kind"
        )
        self.took = Histogram("holdfast_controller_look_seconds", "How long looks took.", "kind")
        self._all: list[Counter | Gauge | Histogram] = [
            self.events,
            self.looks,
            self.writes,
            self.swept,
            self.waited,
            self.took,
        ]

    def gauge(self, name: str, words: str, ask: Callable[[], float]) -> None:
        """One more thing to ask for."""
        self._all.append(Gauge(name, words, ask))

    def text(self) -> str:
        """All of it in Prometheus' text format."""
        lines: list[str] = []
        for each in self._all:
            lines += [f"# HELP {each.name} {each.words}", f"# TYPE {each.name} {each.kind}", *each.lines()]
        return "\n".join(lines) + "\n"


def _braces(labels: object) -> str:
    pairs = [f'{name}="{_escaped(value)}"' for name, value in labels]  # type: ignore[attr-defined]
    return "{" + ",".join(pairs) + "}" if pairs else ""


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
