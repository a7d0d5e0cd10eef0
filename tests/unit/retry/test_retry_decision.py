"""The pure decision: attempts, deadline, Retry-After; nothing else is asked."""

import math

import pytest
from hypothesis import given, strategies as st

from holdfast.retry import constant, exponential
from holdfast.retry.retry_decision import MAX_RETRY_AFTER, FailedAttempt, decide_retry

low, high = (lambda: 0.0), (lambda: 0.999999)
times = st.floats(0, 1e6)


def failure(attempt=1, took=0.0, left=math.inf, **rest):
    return FailedAttempt(attempt, took, left, **rest)


def test_last_attempt_is_final():
    assert decide_retry(3, constant(1), failure(2), low).give_up_reason is None
    assert decide_retry(3, constant(1), failure(3), low).give_up_reason == "no attempts left"


def test_none_means_until_deadline():
    assert decide_retry(None, constant(1), failure(10**6, left=5), low).give_up_reason is None
    assert decide_retry(None, constant(1), failure(10**6, left=0), low).give_up_reason == "no time left"


@given(took=times, left=times, delay=st.floats(0, 100), draw=st.floats(0, 1, exclude_max=True))
def test_delay_ends_before_deadline(took, left, delay, draw):
    verdict = decide_retry(None, constant(delay), failure(took=took, left=left), lambda: draw)
    assert verdict.give_up_reason is not None or 0 <= verdict.delay < left


def test_shortened_delay_leaves_time_for_one_attempt():
    verdict = decide_retry(None, constant(10, jitter=0), failure(took=1.0, left=5.0), low)
    assert verdict.delay == 4.0
    assert verdict.was_shortened
    assert (
        decide_retry(None, constant(10), failure(left=1.0, was_shortened=True), low).give_up_reason
        == "no time left"
    )


def test_long_attempt_keeps_half_of_remaining_time():
    assert decide_retry(None, constant(10, jitter=0), failure(took=60, left=4), low).delay == 2.0


@given(asked=st.floats(0.05, 1e9), draw=st.floats(0, 1, exclude_max=True))
def test_retry_after_is_clamped_and_jittered_upwards(asked, draw):
    delay = decide_retry(9, exponential(), failure(retry_after=asked), lambda: draw).delay
    floor = min(asked, MAX_RETRY_AFTER)
    assert floor <= delay <= floor * 1.1


@pytest.mark.parametrize("asked", [None, 0.0, -3.0, 0.001, 1e-9])
def test_missing_retry_after_falls_back_to_backoff(asked):
    assert decide_retry(9, constant(2, jitter=0), failure(retry_after=asked), high).delay == 2


def test_retry_after_beyond_deadline_gives_up():
    verdict = decide_retry(9, constant(0.1), failure(retry_after=20, left=5), low)
    assert verdict.give_up_reason == "the server requested a wait beyond the deadline"


def test_invalid_backoff_is_never_a_negative_sleep():
    class Odd:
        def delay(self, attempt, previous, chance):
            return -5.0

    assert decide_retry(9, Odd(), failure(), low).delay == 0.0
