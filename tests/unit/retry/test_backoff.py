"""Delays: within their bounds, growing, and still spread out when all have reached the cap."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.errors import ArgumentError, UsageError
from holdfast.retry import constant, decorrelated, exponential, linear
from holdfast.retry.backoff import chance

firsts = st.floats(0.001, 100)
attempts = st.integers(1, 10_000)
chances = st.floats(0, 1, exclude_max=True)


@given(first=firsts, over=st.floats(1, 1000), factor=st.floats(1, 10), n=attempts, draw=chances)
def test_exponential_stays_between_its_jittered_first_and_its_cap(first, over, factor, n, draw):
    cap = first * over
    delay = exponential(first, cap=cap, factor=factor, jitter=0.5).delay(n, 0, lambda: draw)
    assert first * 0.5 * 0.999 <= delay <= cap


@given(first=firsts, over=st.floats(1, 1000), n=attempts, draw=chances)
def test_linear_and_constant_stay_within_bounds(first, over, n, draw):
    cap = first * over
    assert 0 < linear(first, cap=cap).delay(n, 0, lambda: draw) <= cap
    assert first * 0.5 <= constant(first).delay(n, 0, lambda: draw) <= first


@given(first=firsts, over=st.floats(1, 1000), previous=st.floats(0, 1e6), n=attempts, draw=chances)
def test_decorrelated_stays_between_first_and_cap(first, over, previous, n, draw):
    cap = first * over
    assert first <= decorrelated(first, cap=cap).delay(n, previous, lambda: draw) <= cap * 1.0000001


@pytest.mark.parametrize(
    "backoff",
    [exponential(1, cap=8), linear(1, cap=8), constant(8), decorrelated(1, cap=8)],
    ids=repr,
)
def test_jitter_survives_at_the_cap(backoff):
    delays = {round(backoff.delay(60, 8.0, chance), 6) for _ in range(200)}
    assert len(delays) > 150
    assert max(delays) <= 8.0


def test_full_growth_without_jitter():
    assert [exponential(1, cap=10, jitter=0).delay(n, 0, chance) for n in (1, 2, 3, 4, 5)] == [1, 2, 4, 8, 10]
    assert [linear(1, cap=3, jitter=0).delay(n, 0, chance) for n in (1, 2, 3, 4)] == [1, 2, 3, 3]
    assert constant(2, jitter=0).delay(99, 0, chance) == 2


def test_a_number_of_attempts_that_overflows_is_the_cap():
    assert exponential(1, cap=10, factor=10, jitter=0).delay(100_000, 0, chance) == 10


@pytest.mark.parametrize(
    ("make", "argument"),
    [
        (lambda: exponential(-1), "first"),
        (lambda: exponential(math.nan), "first"),
        (lambda: exponential(math.inf), "first"),
        (lambda: exponential(5, cap=1), "cap"),
        (lambda: exponential(1, cap=math.nan), "cap"),
        (lambda: exponential(1, factor=0.5), "factor"),
        (lambda: exponential(1, jitter=1.5), "jitter"),
        (lambda: exponential(1, jitter=math.nan), "jitter"),
        (lambda: linear(1, step=-1), "step"),
        (lambda: linear(2, cap=1), "cap"),
        (lambda: constant(-1), "delay"),
        (lambda: constant("1"), "delay"),
        (lambda: constant(True), "delay"),
        (lambda: decorrelated(0), "first"),
        (lambda: decorrelated(2, cap=1), "cap"),
        (lambda: constant(10**400), "delay"),
    ],
)
def test_what_cannot_be_meant_is_refused_by_name(make, argument):
    with pytest.raises(ArgumentError) as caught:
        make()
    assert caught.value.argument == argument
    assert argument in str(caught.value)
    assert isinstance(caught.value, UsageError)
    assert isinstance(caught.value, ValueError)
