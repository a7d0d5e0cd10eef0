"""Limits per client: a token bucket of requests and a number of streams."""

from __future__ import annotations

import pytest

from holdfast.server.access_middleware import ClientLimits, RateLimiter


class Clock:
    now = 0.0

    def __call__(self):
        return self.now


@pytest.fixture
def clock():
    return Clock()


def gate(clock, **limits):
    return RateLimiter(
        ClientLimits(**{"requests_per_second": 10.0, "burst": 5, "streams": 2, **limits}), clock
    )


def test_burst_passes_then_rate_applies(clock):
    made = gate(clock)
    assert [made.acquire_request("a") for _ in range(5)] == [0.0] * 5
    assert made.acquire_request("a") == pytest.approx(0.1)
    clock.now = 0.05
    assert made.acquire_request("a") == pytest.approx(0.05)
    clock.now = 0.1
    assert made.acquire_request("a") == 0.0
    assert made.acquire_request("a") > 0


def test_idle_time_refills_bucket_up_to_burst(clock):
    made = gate(clock)
    for _ in range(5):
        made.acquire_request("a")
    clock.now = 1000.0
    assert sum(made.acquire_request("a") == 0.0 for _ in range(20)) == 5


def test_clients_have_separate_limits(clock):
    made = gate(clock)
    for _ in range(6):
        made.acquire_request("a")
    assert made.acquire_request("b") == 0.0
    assert made.open_stream("a")
    assert made.open_stream("a")
    assert not made.open_stream("a")
    assert made.open_stream("b")


def test_closed_stream_frees_slot(clock):
    made = gate(clock)
    assert made.open_stream("a")
    assert made.open_stream("a")
    made.close_stream("a")
    assert made.open_stream("a")
    assert not made.open_stream("a")


def test_idle_clients_are_forgotten_unless_streaming(clock):
    made = gate(clock)
    made.open_stream("kept")
    for number in range(5000):
        made.acquire_request(f"c{number}")
        clock.now += 1.0
    assert len(made._clients) <= 1025
    made.open_stream("kept")
    assert not made.open_stream("kept")
