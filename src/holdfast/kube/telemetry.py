"""Counters and spans of attempts, for those who have the libraries installed; nothing is imported before.

An observer is told when an attempt begins and returns what is to be told when it has ended. Labels are verbs,
resources and outcome classes: few values, and never a name, a namespace or a message.
"""

from __future__ import annotations

import time
import weakref
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Callable

# (verb, resource) → (outcome) → None; the outcome is "ok" or an outcome class.
Observer: TypeAlias = "Callable[[str, str], Callable[[str], None]]"


# A registry takes a name once, and every API object may want to be counted.
_counted: weakref.WeakKeyDictionary[Any, Observer] = weakref.WeakKeyDictionary()


def prometheus(registry: Any = None) -> Observer:
    """Counts attempts and their seconds by verb, resource and outcome (extra `metrics`)."""
    from prometheus_client import REGISTRY, Counter, Histogram

    where = REGISTRY if registry is None else registry
    if where not in _counted:
        _counted[where] = _counting(where, Counter, Histogram)
    return _counted[where]


def _counting(where: Any, counter: Any, histogram: Any) -> Observer:
    labels = ("verb", "resource", "outcome")
    attempts = counter(
        "holdfast_kube_attempts", "Requests to the API server, repetitions included.", labels, registry=where
    )
    seconds = histogram(
        "holdfast_kube_attempt_seconds", "How long they took.", ("verb", "outcome"), registry=where
    )

    def begin(verb: str, resource: str) -> Callable[[str], None]:
        began = time.perf_counter()

        def end(outcome: str) -> None:
            attempts.labels(verb, resource, outcome).inc()
            seconds.labels(verb, outcome).observe(time.perf_counter() - began)

        return end

    return begin


def opentelemetry(tracer_provider: Any = None) -> Observer:
    """One client span for each attempt (extra `tracing`)."""
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
