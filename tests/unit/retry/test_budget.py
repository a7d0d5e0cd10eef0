"""The shared budget: never exceeded in any window, closed by Retry-After, invisible while all is well."""

import itertools
import math
import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.errors import ArgumentError, DeadlineError
from holdfast.retry import Budget, Policy, constant, testing_mode

steps = st.lists(st.floats(0, 2), min_size=1, max_size=60)


@given(steps=steps, rate=st.floats(0.5, 50), burst=st.integers(1, 20))
def test_no_window_holds_more_than_burst_plus_rate(steps, rate, burst):
    budget, now, granted = Budget(rate, burst=burst), 0.0, []
    for step in steps:
        now += step
        wait = budget.take(now, longest=math.inf)
        granted.append(now + wait)
    granted.sort()
    for i, start in enumerate(granted):
        for j in range(i, len(granted)):
            assert j - i + 1 <= burst + rate * (granted[j] - start) + 1e-6


def test_a_turn_that_comes_too_late_is_not_taken():
    budget = Budget(1, burst=1)
    assert budget.take(0, longest=9) == 0
    assert budget.take(0, longest=0.5) is None
    assert budget.take(0, longest=9) == 1.0


def test_eight_threads_get_no_more_turns_than_one():
    budget, turns, lock = Budget(100, burst=5), [], threading.Lock()

    def take():
        for _ in range(200):
            wait = budget.take(0.0, longest=math.inf)
            with lock:
                turns.append(wait)

    threads = [threading.Thread(target=take) for _ in range(8)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    turns.sort()
    assert turns[:5] == [0] * 5
    assert turns[-1] == pytest.approx((1600 - 5) / 100)


def test_retries_wait_for_their_turn():
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


def test_a_turn_beyond_the_deadline_ends_the_call_with_its_last_error():
    budget = Budget(0.01, burst=1)
    budget.take(0, longest=math.inf)
    with testing_mode() as clock:
        budget.take(clock.monotonic(), longest=math.inf)
        policy = Policy(deadline=5, budget=budget, backoff=constant(0))
        with pytest.raises(ConnectionError) as caught:
            policy.call(_refused)
    assert "no turn from the shared budget in time" in caught.value.__notes__[0]


def _refused():
    raise ConnectionRefusedError


def test_a_policy_with_counted_attempts_does_not_queue_for_ever():
    budget = Budget(0.001, burst=1, max_wait=5)
    policy = Policy(attempts=4, budget=budget, backoff=constant(0))
    with testing_mode() as clock:
        budget.take(clock.monotonic(), longest=math.inf)
        with pytest.raises(ConnectionRefusedError):
            policy.call(_refused)
    assert sum(clock.slept) < 5


def test_retry_after_closes_the_gate_for_everybody():
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
        before = len(clock.slept)
        budget.close(clock.monotonic() + 8)
        assert other.call(lambda: 7) == 7
        assert 8.0 <= clock.slept[before] <= 8.8


def test_a_gate_closed_for_the_longest_time_is_waited_for():
    """Half a minute and its spread are more than the patience with a queue."""
    budget = Budget(100, burst=100, max_wait=5)
    with testing_mode() as clock:
        for _ in range(20):
            budget.close(clock.monotonic() + 30)
            assert Policy(attempts=3, budget=budget).call(lambda: 7) == 7
        assert all(30 <= slept <= 33 for slept in clock.slept)


def test_a_gate_that_is_closed_again_and_again_is_not_waited_for_for_ever():
    budget = Budget(100, burst=100, max_wait=5)
    with testing_mode() as clock:
        budget.close(clock.monotonic() + 30)
        closed_for = budget.closed_for
        budget.closed_for = lambda now: closed_for(now) or 30.0
        with pytest.raises(DeadlineError):
            Policy(attempts=3, budget=budget).call(lambda: 7)
    assert sum(clock.slept) < 40


def test_a_first_attempt_queues_only_while_the_endpoint_does_nothing_but_fail():
    budget = Budget(1, burst=1)
    policy = Policy(attempts=1, budget=budget, retry_on=OSError)
    with testing_mode() as clock:
        for _ in range(5):
            with pytest.raises(OSError):
                policy.call(_refused)
        assert clock.slept == []
        budget.take(clock.monotonic(), longest=9)
        assert policy.call(lambda: 1) == 1
        assert len(clock.slept) == 1
        assert policy.call(lambda: 1) == 1
        assert len(clock.slept) == 1


def test_a_first_attempt_without_a_turn_in_time_was_not_begun():
    budget = Budget(0.001, burst=1)
    policy = Policy(deadline=2, budget=budget, retry_on=OSError)
    calls = []
    with testing_mode() as clock:
        for _ in range(5):
            budget.failed()
        budget.take(clock.monotonic(), longest=9)
        with pytest.raises(DeadlineError, match="was not begun"):
            policy.call(calls.append, 1)
    assert calls == []


def test_a_refusal_for_good_shows_that_the_endpoint_is_there():
    budget = Budget(1, burst=1)
    policy = Policy(attempts=1, budget=budget, retry_on=OSError)
    for _ in range(5):
        budget.failed()
    assert budget.ailing

    def refuse():
        raise KeyError("no")

    with testing_mode(), pytest.raises(KeyError):
        policy.call(refuse)
    assert not budget.ailing


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
def test_a_budget_of_nothing_is_refused(make, argument):
    with pytest.raises(ArgumentError) as caught:
        make()
    assert caught.value.argument == argument
