"""Calls under a policy, sync and async by the same tests: what is retried, until when, and what is raised."""

import contextlib
import math
import threading

import pytest
from hypothesis import given, settings, strategies as st

from holdfast.errors import DeadlineExceededError, InvalidArgumentError, TemporaryError
from holdfast.retry import Deadline, Policy, constant, current_deadline, exponential, testing_mode

quick = Policy(attempts=4, backoff=constant(1, jitter=0), retry_on=OSError)


def test_success_is_returned_without_sleep(driver, script):
    with testing_mode() as clock:
        assert driver.call(quick, script("fine")) == "fine"
    assert clock.sleeps == []


def test_transient_failure_is_retried(driver, script):
    fn = script(OSError(), OSError(), 5)
    with testing_mode() as clock:
        assert driver.call(quick, fn) == 5
    assert fn.calls == 3
    assert clock.sleeps == [1, 1]


def test_last_error_is_raised_with_history_note(driver, script):
    last = OSError("last words")
    fn = script(OSError("first"), ConnectionResetError("second"), last)
    with testing_mode(), pytest.raises(OSError) as caught:
        driver.call(quick.replace(attempts=3), fn)
    assert caught.value is last
    (note,) = last.__notes__
    assert "gave up after 3 attempts" in note
    assert "no attempts left" in note
    assert "attempt 1: OSError: first; waited 1.00 s" in note
    assert "attempt 2: ConnectionResetError: second" in note


def test_permanent_error_is_raised_immediately_without_note(driver, script):
    error = KeyError("no")
    fn = script(error)
    with testing_mode(), pytest.raises(KeyError) as caught:
        driver.call(quick, fn)
    assert caught.value is error
    assert fn.calls == 1
    assert not getattr(error, "__notes__", [])


def test_permanent_error_ends_retries(driver, script):
    fn = script(OSError(), KeyError("no"))
    with testing_mode(), pytest.raises(KeyError) as caught:
        driver.call(quick, fn)
    assert fn.calls == 2
    assert "not retryable" in caught.value.__notes__[0]


def test_reused_exception_gets_one_note(driver, script):
    error = OSError("same")
    with testing_mode():
        for _ in range(5):
            with pytest.raises(OSError):
                driver.call(quick, script(error))
    assert len(error.__notes__) == 1


def test_errors_of_attempts_are_not_chained(driver, script):
    errors = [OSError(str(n)) for n in range(4)]
    with testing_mode(), pytest.raises(OSError) as caught:
        driver.call(quick, script(*errors))
    assert caught.value.__context__ is None


@pytest.mark.parametrize("stopper", [KeyboardInterrupt, SystemExit, GeneratorExit])
def test_base_exceptions_are_never_retried(driver, script, stopper):
    fn = script(stopper)
    policy = quick.replace(retry_on=lambda error: not isinstance(error, ValueError))
    with testing_mode(), pytest.raises(stopper):
        driver.call(policy, fn)
    assert fn.calls == 1


def test_predicate_decides(driver, script):
    with testing_mode():
        policy = quick.replace(retry_on=lambda error: "again" in str(error))
        assert driver.call(policy, script(ValueError("again"), 1)) == 1
        with pytest.raises(ValueError, match="never"):
            driver.call(policy, script(ValueError("never"), 1))


def test_raising_predicate_is_one_clear_error(driver, script):
    def broken(error):
        raise ZeroDivisionError

    with testing_mode(), pytest.raises(InvalidArgumentError, match=r"retry_on.*ZeroDivisionError.*OSError"):
        driver.call(quick.replace(retry_on=broken), script(OSError()))


def test_raising_retry_after_source_is_one_clear_error(driver, script):
    def broken(error):
        raise ZeroDivisionError

    with testing_mode(), pytest.raises(InvalidArgumentError, match=r"retry_after.*ZeroDivisionError"):
        driver.call(quick.replace(retry_after=broken), script(OSError()))


@pytest.mark.parametrize("asked", [math.nan, math.inf, -1.0, 0.0, None])
def test_invalid_retry_after_falls_back_to_backoff(driver, script, asked):
    with testing_mode() as clock:
        driver.call(quick.replace(retry_after=lambda _: asked), script(OSError(), 1))
    assert clock.sleeps == [1]


def test_retry_after_is_a_minimum(driver, script):
    with testing_mode() as clock:
        driver.call(quick.replace(retry_after=lambda _: 7.0), script(OSError(), 1))
    assert 7.0 <= clock.sleeps[0] <= 7.7


# Deadlines -------------------------------------------------------------------------------------------------


def test_unlimited_attempts_end_at_deadline(driver, script):
    fn = script(OSError())
    policy = quick.replace(attempts=None, deadline=60)
    with testing_mode() as clock, pytest.raises(OSError) as caught:
        driver.call(policy, fn)
    assert 55 <= fn.calls <= 61
    assert sum(clock.sleeps) < 60
    assert "no time left" in caught.value.__notes__[0]
    assert "earlier attempts left out" in caught.value.__notes__[0]


@settings(max_examples=60, deadline=None)
@given(
    deadline=st.floats(0.1, 100),
    first=st.floats(0.001, 10),
    cap=st.floats(10, 50),
    took=st.lists(st.floats(0, 5), min_size=1, max_size=5),
    asked=st.none() | st.floats(-5, 60),
)
def test_no_attempt_or_sleep_exceeds_deadline(deadline, first, cap, took, asked):
    began = []
    policy = Policy(
        attempts=None,
        deadline=deadline,
        backoff=exponential(first, cap=cap),
        retry_on=OSError,
        retry_after=lambda _: asked,
    )

    def slow():
        began.append(clock.monotonic())
        clock.advance(took[len(began) % len(took)])
        raise OSError

    with testing_mode() as clock, pytest.raises(OSError):
        policy.call(slow)
    # The first one begins when the policy does; real time that passes before it is not the policy's.
    assert max(began) - began[0] < deadline
    assert sum(clock.sleeps) < deadline


def test_nested_policy_is_limited_by_outer_deadline(driver, script):
    inner = script(OSError())
    policy = quick.replace(attempts=None, deadline=1000)
    with testing_mode() as clock, Deadline.after(10), pytest.raises(OSError):
        driver.call(policy, inner)
    assert sum(clock.sleeps) < 10


def test_deadline_is_available_to_call(driver):
    seen = []

    def look():
        seen.append(current_deadline().clip(30))
        return 1

    with testing_mode():
        driver.call(quick.replace(deadline=10), look)
        with Deadline.after(3):
            driver.call(quick.replace(deadline=10), look)
        driver.call(quick.replace(deadline=100), look)
    assert 9 < seen[0] <= 10
    assert 2 < seen[1] <= 3
    assert seen[2] == 30
    assert current_deadline() is None


def test_expired_deadline_prevents_first_attempt(driver, script):
    fn = script(1)
    expired = pytest.raises(DeadlineExceededError, match="not started")
    with testing_mode(), Deadline.after(0), expired as caught:
        driver.call(quick, fn)
    assert fn.calls == 0
    assert isinstance(caught.value, TimeoutError)
    assert isinstance(caught.value, TemporaryError)


def test_deadline_can_be_shared_by_calls(driver, script):
    with testing_mode() as clock:
        shared = Deadline.after(10)
        policy = quick.replace(attempts=None, deadline=shared)
        with pytest.raises(OSError):
            driver.call(policy, script(OSError()))
        with pytest.raises((OSError, DeadlineExceededError)):
            driver.call(policy, script(OSError()))
        clock.advance(10)
        with pytest.raises(DeadlineExceededError):
            driver.call(policy, script(1))


def test_shared_deadline_is_thread_safe():
    deadline, problems = Deadline.after(60), []

    def use():
        try:
            for _ in range(200):
                with deadline, deadline:
                    assert current_deadline().expires == deadline.expires
                assert current_deadline() is None
        except BaseException as error:  # noqa: BLE001
            problems.append(error)

    threads = [threading.Thread(target=use) for _ in range(8)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    assert problems == []


# Layers ----------------------------------------------------------------------------------------------------


def test_nested_policies_do_not_multiply_attempts(driver, script):
    fn = script(OSError())

    def layer():
        return quick.call(fn)

    with testing_mode(), pytest.raises(OSError):
        driver.call(quick, layer)
    assert fn.calls == 4


def test_translated_error_counts_as_exhausted(driver, script):
    fn = script(OSError())

    def layer():
        try:
            return quick.call(fn)
        except OSError as error:
            raise TemporaryError("translated") from error

    with testing_mode(), pytest.raises(TemporaryError):
        driver.call(Policy(attempts=4), layer)
    assert fn.calls == 4


def test_outer_policy_may_retry_what_inner_does_not(driver, script):
    fn = script(KeyError(), KeyError(), 1)

    def layer():
        return quick.call(fn)

    with testing_mode():
        assert driver.call(quick.replace(retry_on=KeyError), layer) == 1
    assert fn.calls == 3


def test_deadline_wait_continues_over_inner_policies(driver, script):
    fn = script(*[OSError()] * 9, 1)

    def layer():
        return quick.call(fn)

    with testing_mode():
        assert driver.call(quick.replace(attempts=None, deadline=100), layer) == 1
    assert fn.calls == 10


def test_new_failure_after_handled_one_is_retried(driver, script):
    inner, calls = script(OSError("inner")), []

    def layer():
        calls.append(1)
        with contextlib.suppress(OSError):
            quick.call(inner)
        raise OSError("another")

    with testing_mode(), pytest.raises(OSError, match="another"):
        driver.call(quick, layer)
    assert len(calls) == 4
