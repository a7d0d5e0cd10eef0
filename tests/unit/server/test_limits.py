"""Limits of each client: a bucket of requests and a number of streams, apart from everybody else's."""

from __future__ import annotations

import pytest

from holdfast.server.limits import Gate, Limits


class Clock:
    now = 0.0

    def __call__(self):
        return self.now


@pytest.fixture
def clock():
    return Clock()


def gate(clock, **limits):
    return Gate(Limits(**{"requests_per_second": 10.0, "burst": 5, "streams": 2, **limits}), clock)


def test_a_burst_passes_and_then_the_rate_holds(clock):
    made = gate(clock)
    assert [made.request("a") for _ in range(5)] == [0.0] * 5
    assert made.request("a") == pytest.approx(0.1)
    clock.now = 0.05
    assert made.request("a") == pytest.approx(0.05)
    clock.now = 0.1
    assert made.request("a") == 0.0
    assert made.request("a") > 0


def test_a_pause_fills_the_bucket_but_not_beyond_its_brim(clock):
    made = gate(clock)
    for _ in range(5):
        made.request("a")
    clock.now = 1000.0
    assert sum(made.request("a") == 0.0 for _ in range(20)) == 5


def test_one_client_costs_another_nothing(clock):
    made = gate(clock)
    for _ in range(6):
        made.request("a")
    assert made.request("b") == 0.0
    assert made.open_stream("a")
    assert made.open_stream("a")
    assert not made.open_stream("a")
    assert made.open_stream("b")


def test_a_stream_that_ends_makes_room_for_one(clock):
    made = gate(clock)
    assert made.open_stream("a")
    assert made.open_stream("a")
    made.close_stream("a")
    assert made.open_stream("a")
    assert not made.open_stream("a")


def test_clients_that_are_gone_are_forgotten_and_those_with_streams_are_not(clock):
    made = gate(clock)
    made.open_stream("kept")
    for number in range(5000):
        made.request(f"c{number}")
        clock.now += 1.0
    assert len(made._clients) <= 1025
    made.open_stream("kept")
    assert not made.open_stream("kept")
