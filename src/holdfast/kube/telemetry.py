"""Observers that count attempts (Prometheus) and trace them (OpenTelemetry); both libraries are optional.

An observer is called when an attempt begins and returns a function that is called with the outcome. Labels
are verbs, resources and failure classes: few values, never a name, a namespace or a message.
"""

from __future__ import annotations

import time
import weakref
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Callable

# (verb, resource) → (outcome) → None; the outcome is "ok", "cancelled" or a failure class.
Observer: TypeAlias = "Callable[[str, str], Callable[[str], None]]"


# A registry accepts each metric name once, but every API object may have an observer.
_observer_by_registry: weakref.WeakKeyDictionary[Any, Observer] = weakref.WeakKeyDictionary()


def prometheus(registry: Any = None) -> Observer:
    """Create an observer that counts attempts and measures their duration (extra `metrics`)."""
    from prometheus_client import REGISTRY, Counter, Histogram

    registry = REGISTRY if registry is None else registry
    if registry not in _observer_by_registry:
        _observer_by_registry[registry] = _create_metrics_observer(registry, Counter, Histogram)
    return _observer_by_registry[registry]


def _create_metrics_observer(registry: Any, counter: Any, histogram: Any) -> Observer:
    labels = ("verb", "resource", "outcome")
    attempts = counter(
        "holdfast_kube_attempts", "Requests to the API server, including retries.", labels, registry=registry
    )
    seconds = histogram(
        "holdfast_kube_attempt_seconds", "Duration of a request.", ("verb", "outcome"), registry=registry
    )

    def begin(verb: str, resource: str) -> Callable[[str], None]:
        began = time.perf_counter()

        def end(outcome: str) -> None:
            attempts.labels(verb, resource, outcome).inc()
            seconds.labels(verb, outcome).observe(time.perf_counter() - began)

        return end

    return begin


def opentelemetry(tracer_provider: Any = None) -> Observer:
    """Create an observer that starts a client span for each attempt (extra `tracing`)."""
    from opentelemetry import trace

    tracer = trace.get_tracer("holdfast.kube", tracer_provider=tracer_provider)

    def begin(verb: str, resource: str) -> Callable[[str], None]:
        span = tracer.start_span(f"kube {verb} {resource}", kind=trace.SpanKind.CLIENT)
        span.set_attribute("holdfast.verb", verb)
        span.set_attribute("holdfast.resource", resource)

        def end(outcome: str) -> None:
            span.set_attribute("holdfast.outcome", outcome)
            if outcome != "ok":
                span.set_status(trace.Status(trace.StatusCode.ERROR, outcome))
            span.end()

        return end

    return begin
