"""Calls under a policy: events, stopping, state, and terms that cannot be meant."""

import gc
import math
import threading
import time
import weakref

import pytest

from holdfast.errors import ArgumentTypeError, InvalidArgumentError, OperationCancelledError
from holdfast.retry import Budget, Deadline, Policy, constant, testing_mode

quick = Policy(attempts=4, backoff=constant(1, jitter=0), retry_on=OSError)


# Events, stop, state ---------------------------------------------------------------------------------------


def test_each_retry_is_an_event(driver, script):
    events = []
    policy = quick.replace(on_retry=events.append, deadline=60)
    with testing_mode():
        driver.call(policy, script(OSError("one"), OSError("two\nsecret second line"), 1))
    assert [event.attempt for event in events] == [1, 2]
    assert [event.delay for event in events] == [1, 1]
    assert [event.reason for event in events] == ["OSError: one", "OSError: two"]
    assert events[0].operation.endswith("script.make.scripted")
    assert 58 < events[1].time_left < 60


def test_event_time_left_is_none_without_deadline(driver, script):
    events = []
    with testing_mode():
        driver.call(quick.replace(on_retry=events.append, operation="asked"), script(OSError(), 1))
    assert events[0].time_left is None
    assert events[0].operation == "asked"


def test_failing_sink_does_not_fail_call(driver, script):
    def broken(event):
        raise ValueError

    with testing_mode(), pytest.raises(OSError) as caught:
        driver.call(quick.replace(on_retry=broken), script(OSError()))
    assert "on_retry raised ValueError" in caught.value.__notes__[0]


def test_describe_hides_error_text_in_events_and_notes(driver, script):
    events = []
    policy = quick.replace(describe=lambda error: type(error).__name__, on_retry=events.append)
    with testing_mode(), pytest.raises(OSError) as caught:
        driver.call(policy, script(OSError("token=hunter2")))
    assert "hunter2" not in repr(events)
    assert "hunter2" not in "".join(caught.value.__notes__)


def test_stop_ends_wait_immediately(driver, script):
    stop = threading.Event()
    policy = quick.replace(backoff=constant(30), stop=stop)
    threading.Timer(0.05, stop.set).start()
    began = time.monotonic()
    with pytest.raises(OperationCancelledError) as caught:
        driver.call(policy, script(OSError("cause")))
    assert time.monotonic() - began < 10
    assert isinstance(caught.value.cause, OSError)


def test_stop_before_first_attempt(driver, script):
    stop, fn = threading.Event(), script(1)
    stop.set()
    with pytest.raises(OperationCancelledError):
        driver.call(quick.replace(stop=stop), fn)
    assert fn.calls == 0


def test_stop_can_replace_deadline(driver, script):
    assert driver.call(quick.replace(attempts=None, stop=threading.Event()), script(1)) == 1


def test_policy_is_thread_safe():
    policy = quick.replace(attempts=3, backoff=constant(0))
    wrong = []

    def work(n):
        for i in range(200):
            left = [OSError()] * (i % 4)

            def fn(left=left):
                if left:
                    raise left.pop()
                return n

            try:
                if policy.call(fn) != n or i % 4 == 3:
                    wrong.append(i)
            except OSError:
                if i % 4 != 3:
                    wrong.append(i)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(8)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    assert wrong == []


def test_errors_and_arguments_are_not_kept_alive(driver):
    class Big:
        pass

    gc.disable()
    try:
        kept = []

        def use(big, fail):
            kept.append(weakref.ref(big))
            if fail[0]:
                fail[0] -= 1
                raise OSError
            return 1

        with testing_mode():
            driver.call(quick, use, Big(), [2])
        if driver.name == "sync":
            assert all(ref() is None for ref in kept)
    finally:
        gc.enable()
    gc.collect()
    assert all(ref() is None for ref in kept)


def test_testing_mode_can_limit_attempts(driver, script):
    fn = script(OSError())
    with testing_mode(attempts=2), pytest.raises(OSError):
        driver.call(quick, fn)
    assert fn.calls == 2


def test_testing_modes_nest():
    real = time.monotonic()
    with testing_mode() as outer:
        outer.advance(1000)
        with testing_mode() as inner:
            inner.advance(5)
        assert Deadline.after(0).expires - real > 900
    assert Deadline.after(0).expires - real < 900


# What cannot be meant --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("values", "argument"),
    [
        ({"attempts": 0}, "attempts"),
        ({"attempts": -3}, "attempts"),
        ({"attempts": 2.5}, "attempts"),
        ({"attempts": True}, "attempts"),
        ({"attempts": None}, "attempts"),
        ({"deadline": 0}, "deadline"),
        ({"deadline": -1}, "deadline"),
        ({"deadline": math.nan}, "deadline"),
        ({"deadline": math.inf}, "deadline"),
        ({"deadline": "60"}, "deadline"),
        ({"backoff": 2}, "backoff"),
        ({"retry_on": KeyboardInterrupt}, "retry_on"),
        ({"retry_on": BaseException}, "retry_on"),
        ({"retry_on": (OSError, SystemExit)}, "retry_on"),
        ({"retry_on": ()}, "retry_on"),
        ({"retry_on": "OSError"}, "retry_on"),
        ({"retry_on": (OSError, lambda e: True)}, "retry_on"),
        ({"retry_after": 5}, "retry_after"),
        ({"on_retry": "print"}, "on_retry"),
        ({"budget": 5}, "budget"),
        ({"stop": True}, "stop"),
        ({"describe": None}, "describe"),
    ],
)
def test_invalid_policy_is_rejected_by_name(values, argument):
    with pytest.raises(InvalidArgumentError) as caught:
        Policy(**values)
    assert caught.value.argument == argument
    with pytest.raises(InvalidArgumentError):
        Policy().replace(**values)


def test_wrong_type_is_also_a_type_error():
    with pytest.raises(TypeError):
        Policy(budget=Budget)
    assert issubclass(ArgumentTypeError, ValueError)


def test_unknown_keyword_is_rejected():
    with pytest.raises(TypeError):
        Policy(attempt=4)


def test_policy_is_a_value():
    assert Policy(attempts=3, deadline=5) == Policy(attempts=3, deadline=5)
    with pytest.raises(AttributeError):
        Policy().attempts = 5


def test_call_of_coroutine_function_is_rejected():
    async def later():
        pytest.fail("not to be called")

    with pytest.raises(ArgumentTypeError, match="acall"):
        Policy().call(later)


@pytest.mark.parametrize("moment", [float("nan"), "soon", True, None])
def test_deadline_is_a_point_in_time(moment):
    with pytest.raises(ArgumentTypeError, match="expires"):
        Deadline(moment)


@pytest.mark.parametrize("attempts", [0, -1, "x", 1.5])
def test_testing_mode_rejects_invalid_attempts(attempts):
    with pytest.raises(InvalidArgumentError, match="attempts"), testing_mode(attempts=attempts):
        pytest.fail("begun")


def test_failing_describe_does_not_hide_error():
    def fail():
        raise ConnectionError("the real one")

    with testing_mode(), pytest.raises(ConnectionError, match="the real one"):
        Policy(describe=lambda error: 1 / 0).call(fail)
