"""The shared budget: never exceeded in any window, closed by Retry-After, invisible while all is well."""

import itertools
import math
import os
import signal
import threading

import pytest
from hypothesis import given, strategies as st

from holdfast.errors import DeadlineExceededError, InvalidArgumentError
from holdfast.retry import Budget, Policy, budget as budget_module, constant, testing_mode

steps = st.lists(st.floats(0, 2), min_size=1, max_size=60)


@given(steps=steps, rate=st.floats(0.5, 50), burst=st.integers(1, 20))
def test_window_holds_at_most_burst_plus_rate(steps, rate, burst):
    budget, now, granted = Budget(rate, burst=burst), 0.0, []
    for step in steps:
        now += step
        wait = budget.reserve(now, max_wait=math.inf)
        granted.append(now + wait)
    granted.sort()
    for i, start in enumerate(granted):
        for j in range(i, len(granted)):
            assert j - i + 1 <= burst + rate * (granted[j] - start) + 1e-6


def test_token_beyond_deadline_is_not_taken():
    budget = Budget(1, burst=1)
    assert budget.reserve(0, max_wait=9) == 0
    assert budget.reserve(0, max_wait=0.5) is None
    assert budget.reserve(0, max_wait=9) == 1.0


def test_eight_threads_share_one_rate():
    budget, turns, lock = Budget(100, burst=5), [], threading.Lock()

    def take():
        for _ in range(200):
            wait = budget.reserve(0.0, max_wait=math.inf)
            with lock:
                turns.append(wait)

    threads = [threading.Thread(target=take) for _ in range(8)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    turns.sort()
    assert turns[:5] == [0] * 5
    assert turns[-1] == pytest.approx((1600 - 5) / 100)


def test_retries_wait_for_token():
    calls = []
    budget = Budget(1, burst=1)
    policy = Policy(attempts=5, backoff=constant(0), retry_on=OSError, budget=budget)

    def fail():
        calls.append(clock.monotonic())
        raise OSError

    with testing_mode() as clock, pytest.raises(OSError):
        policy.call(fail)
    gaps = [b - a for a, b in itertools.pairwise(calls)]
    assert len(calls) == 5
    assert gaps[0] < 0.5
    assert all(gap > 0.9 for gap in gaps[1:])


def test_token_beyond_deadline_ends_call_with_last_error():
    budget = Budget(0.01, burst=1)
    budget.reserve(0, max_wait=math.inf)
    with testing_mode() as clock:
        budget.reserve(clock.monotonic(), max_wait=math.inf)
        policy = Policy(deadline=5, budget=budget, backoff=constant(0))
        with pytest.raises(ConnectionError) as caught:
            policy.call(_refused)
    assert "the shared retry budget is exhausted" in caught.value.__notes__[0]


def _refused():
    raise ConnectionRefusedError


def test_counted_attempts_do_not_queue_forever():
    budget = Budget(0.001, burst=1, max_wait=5)
    policy = Policy(attempts=4, budget=budget, backoff=constant(0))
    with testing_mode() as clock:
        budget.reserve(clock.monotonic(), max_wait=math.inf)
        with pytest.raises(ConnectionRefusedError):
            policy.call(_refused)
    assert sum(clock.sleeps) < 5


def test_retry_after_blocks_all_callers():
    budget = Budget(100, burst=100)
    asks = Policy(attempts=2, retry_after=lambda _: 8.0, budget=budget, retry_on=OSError)
    other = Policy(budget=budget)
    with testing_mode() as clock:
        answers = iter([OSError(), 1])

        def once():
            answer = next(answers)
            if isinstance(answer, Exception):
                raise answer
            return answer

        asks.call(once)
        before = len(clock.sleeps)
        budget.block_until(clock.monotonic() + 8)
        assert other.call(lambda: 7) == 7
        assert 8.0 <= clock.sleeps[before] <= 8.8


def test_longest_block_is_awaited():
    """Half a minute and its spread are more than the patience with a queue."""
    budget = Budget(100, burst=100, max_wait=5)
    with testing_mode() as clock:
        for _ in range(20):
            budget.block_until(clock.monotonic() + 30)
            assert Policy(attempts=3, budget=budget).call(lambda: 7) == 7
        assert all(30 <= slept <= 33 for slept in clock.sleeps)


def test_repeatedly_extended_block_is_not_awaited_forever():
    budget = Budget(100, burst=100, max_wait=5)
    with testing_mode() as clock:
        budget.block_until(clock.monotonic() + 30)
        closed_for = budget.blocked_for
        budget.blocked_for = lambda now: closed_for(now) or 30.0
        with pytest.raises(DeadlineExceededError):
            Policy(attempts=3, budget=budget).call(lambda: 7)
    assert sum(clock.sleeps) < 40


def test_first_attempt_queues_only_while_endpoint_fails():
    budget = Budget(1, burst=1)
    policy = Policy(attempts=1, budget=budget, retry_on=OSError)
    with testing_mode() as clock:
        for _ in range(5):
            with pytest.raises(OSError):
                policy.call(_refused)
        assert clock.sleeps == []
        budget.reserve(clock.monotonic(), max_wait=9)
        assert policy.call(lambda: 1) == 1
        assert len(clock.sleeps) == 1
        assert policy.call(lambda: 1) == 1
        assert len(clock.sleeps) == 1


def test_first_attempt_without_token_is_not_started():
    budget = Budget(0.001, burst=1)
    policy = Policy(deadline=2, budget=budget, retry_on=OSError)
    calls = []
    with testing_mode() as clock:
        for _ in range(5):
            budget.record_failure()
        budget.reserve(clock.monotonic(), max_wait=9)
        with pytest.raises(DeadlineExceededError, match="not started"):
            policy.call(calls.append, 1)
    assert calls == []


def test_permanent_error_shows_endpoint_is_up():
    budget = Budget(1, burst=1)
    policy = Policy(attempts=1, budget=budget, retry_on=OSError)
    for _ in range(5):
        budget.record_failure()
    assert budget.is_failing

    def refuse():
        raise KeyError("no")

    with testing_mode(), pytest.raises(KeyError):
        policy.call(refuse)
    assert not budget.is_failing


def test_error_without_a_response_does_not_show_endpoint_is_up():
    budget = Budget(1, burst=1)
    policy = Policy(attempts=1, budget=budget, retry_on=lambda _: None)
    for _ in range(5):
        budget.record_failure()

    def lose_response():
        raise ConnectionResetError

    with testing_mode(), pytest.raises(ConnectionResetError):
        policy.call(lose_response)
    assert budget.is_failing


@pytest.mark.skipif(not hasattr(os, "fork"), reason="requires fork")
def test_forked_child_does_not_wait_for_lock_of_parent():
    budget = Budget(1, burst=1)
    with budget_module._lock:
        child = os.fork()
        if child == 0:
            signal.alarm(20)
            budget.record_failure()
            os._exit(0 if budget.consecutive_failures == 1 else 1)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0


@pytest.mark.parametrize(
    ("make", "argument"),
    [
        (lambda: Budget(0), "rate"),
        (lambda: Budget(-1), "rate"),
        (lambda: Budget(math.nan), "rate"),
        (lambda: Budget(1, burst=0), "burst"),
        (lambda: Budget(1, burst=1.5), "burst"),
        (lambda: Budget(1, max_wait=0), "max_wait"),
    ],
)
def test_zero_budget_is_rejected(make, argument):
    with pytest.raises(InvalidArgumentError) as caught:
        make()
    assert caught.value.argument == argument
