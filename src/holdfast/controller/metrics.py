"""Prometheus metrics of the controller, in a separate registry."""

from __future__ import annotations

from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

if TYPE_CHECKING:
    from collections.abc import Callable

_PREFIX = "holdfast_controller"
_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)


class ControllerMetrics:
    """Counters and histograms of one controller."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.events = self._counter("events_total", "Watch events.", "kind")
        self.reconciles = self._counter("reconcile_total", "Reconciliations.", "kind", "result")
        self.writes = self._counter("writes_total", "Writes to the API server.", "verb")
        self.resync_corrections = self._counter(
            "resync_corrections_total", "Changes that a list found and no watch reported.", "kind", "action"
        )
        self.queue_duration = self._histogram("queue_duration_seconds", "Time from change to reconciliation.")
        self.reconcile_duration = self._histogram(
            "reconcile_duration_seconds", "Duration of reconciliations."
        )

    def add_gauge(self, name: str, description: str, read: Callable[[], float]) -> None:
        """Add a gauge whose value is read when the metrics are scraped."""
        Gauge(f"{_PREFIX}_{name}", description, registry=self.registry).set_function(read)

    def encode(self) -> bytes:
        """Encode all metrics in the Prometheus text format."""
        return generate_latest(self.registry)

    def _counter(self, name: str, description: str, *labels: str) -> Counter:
        return Counter(f"{_PREFIX}_{name}", description, labels, registry=self.registry)

    def _histogram(self, name: str, description: str) -> Histogram:
        return Histogram(
            f"{_PREFIX}_{name}", description, ("kind",), registry=self.registry, buckets=_BUCKETS
        )
