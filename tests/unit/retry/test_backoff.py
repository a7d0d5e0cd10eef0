"""Delays: within their bounds, growing, and still spread out when all have reached the cap."""

import math

import pytest
from hypothesis import given, strategies as st

from holdfast.errors import InvalidArgumentError, UsageError
from holdfast.retry import constant, decorrelated, exponential, linear
from holdfast.retry.backoff import random_fraction

firsts = st.floats(0.001, 100)
attempts = st.integers(1, 10_000)
chances = st.floats(0, 1, exclude_max=True)


@given(first=firsts, over=st.floats(1, 1000), factor=st.floats(1, 10), n=attempts, draw=chances)
def test_exponential_stays_within_jittered_first_and_cap(first, over, factor, n, draw):
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
def test_jitter_applies_at_cap(backoff):
    delays = {round(backoff.delay(60, 8.0, random_fraction), 6) for _ in range(200)}
    assert len(delays) > 150
    assert max(delays) <= 8.0


def test_growth_without_jitter():
    assert [exponential(1, cap=10, jitter=0).delay(n, 0, random_fraction) for n in (1, 2, 3, 4, 5)] == [
        1,
        2,
        4,
        8,
        10,
    ]
    assert [linear(1, cap=3, jitter=0).delay(n, 0, random_fraction) for n in (1, 2, 3, 4)] == [1, 2, 3, 3]
    assert constant(2, jitter=0).delay(99, 0, random_fraction) == 2


def test_overflowing_attempt_number_is_capped():
    assert exponential(1, cap=10, factor=10, jitter=0).delay(100_000, 0, random_fraction) == 10


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
def test_invalid_arguments_are_rejected_by_name(make, argument):
    with pytest.raises(InvalidArgumentError) as caught:
        make()
    assert caught.value.argument == argument
    assert argument in str(caught.value)
    assert isinstance(caught.value, UsageError)
    assert isinstance(caught.value, ValueError)
