"""The pure decision: attempts, deadline, Retry-After; nothing else is asked."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.retry import constant, exponential
from holdfast.retry.decision import LONGEST_ASKED, Failure, decide

low, high = (lambda: 0.0), (lambda: 0.999999)
times = st.floats(0, 1e6)


def failure(attempt=1, took=0.0, left=math.inf, **rest):
    return Failure(attempt, took, left, **rest)


def test_the_last_attempt_is_the_last():
    assert decide(3, constant(1), failure(2), low).gave_up is None
    assert decide(3, constant(1), failure(3), low).gave_up == "no attempts left"


def test_none_means_until_the_deadline():
    assert decide(None, constant(1), failure(10**6, left=5), low).gave_up is None
    assert decide(None, constant(1), failure(10**6, left=0), low).gave_up == "no time left"


@given(took=times, left=times, delay=st.floats(0, 100), draw=st.floats(0, 1, exclude_max=True))
def test_a_delay_always_ends_before_the_deadline(took, left, delay, draw):
    verdict = decide(None, constant(delay), failure(took=took, left=left), lambda: draw)
    assert verdict.gave_up is not None or 0 <= verdict.delay < left


def test_a_cut_delay_leaves_room_for_one_attempt_like_the_last_and_only_one():
    verdict = decide(None, constant(10, jitter=0), failure(took=1.0, left=5.0), low)
    assert verdict.delay == 4.0
    assert verdict.squeezed
    assert decide(None, constant(10), failure(left=1.0, squeezed=True), low).gave_up == "no time left"


def test_an_attempt_longer_than_what_is_left_keeps_half_of_it():
    assert decide(None, constant(10, jitter=0), failure(took=60, left=4), low).delay == 2.0


@given(asked=st.floats(0.05, 1e9), draw=st.floats(0, 1, exclude_max=True))
def test_retry_after_is_clamped_and_jittered_upwards_only(asked, draw):
    delay = decide(9, exponential(), failure(asked=asked), lambda: draw).delay
    floor = min(asked, LONGEST_ASKED)
    assert floor <= delay <= floor * 1.1


@pytest.mark.parametrize("asked", [None, 0.0, -3.0, 0.001, 1e-9])
def test_nothing_asked_falls_back_to_backoff(asked):
    assert decide(9, constant(2, jitter=0), failure(asked=asked), high).delay == 2


def test_a_server_that_asks_for_more_than_there_is_time_is_obeyed_by_giving_up():
    verdict = decide(9, constant(0.1), failure(asked=20, left=5), low)
    assert verdict.gave_up == "the server asks for a longer wait than there is time"


def test_a_backoff_that_returns_rubbish_is_no_negative_sleep():
    class Odd:
        def delay(self, attempt, previous, chance):
            return -5.0

    assert decide(9, Odd(), failure(), low).delay == 0.0
