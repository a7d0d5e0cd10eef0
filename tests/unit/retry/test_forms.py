"""The forms of use: decorator, loop, and the module that is its own decorator."""

import asyncio
import functools
import os
import signal
import subprocess
import sys
import threading
import time

import pytest

import holdfast
import holdfast.retry as package
from holdfast.errors import ArgumentKindError, UsageError
from holdfast.retry import Deadline, Policy, constant, current_deadline, retry, testing_mode

policy = Policy(attempts=3, backoff=constant(1), retry_on=OSError)


# Decorator -------------------------------------------------------------------------------------------------


def test_a_decorated_function_keeps_its_name_and_words(script):
    fn = script(OSError(), 2)

    @retry(policy)
    def job(a, *, b=1):
        """What it does."""
        return fn() + a + b

    with testing_mode():
        assert job(10, b=100) == 112
    assert job.__name__ == "job"
    assert job.__doc__ == "What it does."
    assert job.__wrapped__(10) == 13


def test_a_decorated_coroutine_function_stays_one(script):
    fn = script(OSError(), 2)

    @retry(policy)
    async def job():
        return fn()

    with testing_mode():
        assert asyncio.run(job()) == 2
    assert asyncio.iscoroutinefunction(job)


def test_methods_partials_and_callable_objects(script):
    fn = script(OSError(), 1, OSError(), 2, OSError(), 3)

    class Thing:
        @retry(policy)
        def method(self):
            return fn()

        @staticmethod
        @retry(policy)
        def static():
            return fn()

        async def __call__(self):
            return fn()

    with testing_mode():
        assert Thing().method() == 1
        assert Thing.static() == 2
        assert asyncio.run(retry(policy)(Thing())()) == 3
        assert retry(policy)(functools.partial(lambda n: n, 4))() == 4


def test_without_a_policy_errors_that_may_pass_are_retried(script):
    fn = retry()(script(ConnectionResetError(), TimeoutError(), 3))
    with testing_mode():
        assert fn() == 3


def test_operation_and_sink_of_the_decorator_win(script):
    events = []
    fn = retry(policy.with_(operation="policy's"), operation="own", on_retry=events.append)(
        script(OSError(), 1)
    )
    with testing_mode():
        fn()
    assert events[0].operation == "own"


def generator():
    yield


async def async_generator():
    yield


@pytest.mark.parametrize("fn", [generator, async_generator, 5, staticmethod(len), classmethod(len)])
def test_what_cannot_be_called_again_is_refused(fn):
    with pytest.raises(ArgumentKindError, match="fn"):
        retry(policy)(fn)


def test_a_decorator_without_parentheses_is_refused():
    with pytest.raises(ArgumentKindError, match="policy"):

        @retry
        def job():
            pass


# Loop ------------------------------------------------------------------------------------------------------


def test_the_loop_ends_with_the_first_success(script):
    fn, numbers = script(OSError(), OSError(), "done"), []
    with testing_mode() as clock:
        for attempt in policy.tries("it"):
            numbers.append(attempt.number)
            with attempt:
                result = fn()
    assert result == "done"
    assert numbers == [1, 2, 3]
    assert len(clock.slept) == 2


def test_the_async_loop(script):
    fn = script(OSError(), "done")

    async def use():
        async for attempt in policy.tries("it"):
            with attempt:
                result = fn()
        return result

    with testing_mode():
        assert asyncio.run(use()) == "done"


def test_the_loop_raises_the_last_error_with_its_note(script):
    def use():
        for attempt in policy.tries("read it"):
            with attempt:
                script(OSError("x"))()

    with testing_mode(), pytest.raises(OSError) as caught:
        use()
    assert caught.value.__notes__[0].startswith("retry: read it: gave up after 3 attempts")


def test_the_loop_hands_down_its_deadline():
    with testing_mode():
        for attempt in policy.with_(deadline=5).tries():
            with attempt:
                assert 4 < current_deadline().remaining() <= 5
                assert attempt.deadline.expires == current_deadline().expires
        assert current_deadline() is None


def test_a_loop_that_never_enters_its_attempt_is_refused():
    with pytest.raises(UsageError, match="with attempt"):
        for _ in policy.tries("it"):
            pass


def test_break_and_return_are_fine(script):
    for attempt in policy.tries("it"):
        with attempt:
            break
    assert current_deadline() is None


def test_ctrl_c_leaves_the_loop():
    def use():
        for attempt in policy.tries("it"):
            with attempt:
                raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        use()


# At once ---------------------------------------------------------------------------------------------------


def test_ctrl_c_ends_a_sleep_at_once():
    threading.Timer(0.1, os.kill, [os.getpid(), signal.SIGINT]).start()
    began = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        policy.with_(backoff=constant(60)).call(_refused)
    assert time.monotonic() - began < 20


def _refused():
    raise ConnectionRefusedError


def test_cancellation_ends_a_sleep_at_once():
    async def arefused():
        raise ConnectionRefusedError

    async def use():
        task = asyncio.create_task(policy.with_(backoff=constant(60)).acall(arefused))
        await asyncio.sleep(0.05)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    began = time.monotonic()
    asyncio.run(use())
    assert time.monotonic() - began < 20


@pytest.mark.parametrize("event", [threading.Event, asyncio.Event])
def test_both_kinds_of_event_stop_a_task(event):
    async def use():
        stop = event()
        asyncio.get_running_loop().call_later(0.05, stop.set)
        assert await package.apause(30, stop)
        assert await package.apause(30, stop)
        assert not await package.apause(0.01, event())
        assert not await package.apause(0)

    asyncio.run(use())


def test_pause_says_whether_it_was_stopped():
    stop = threading.Event()
    assert not package.pause(0.01)
    assert not package.pause(0, stop)
    assert not package.pause(0.01, stop)
    stop.set()
    assert package.pause(30, stop)
    late = asyncio.Event()
    threading.Timer(0.05, late.set).start()
    assert package.pause(30, late)


# Names -----------------------------------------------------------------------------------------------------


def test_the_root_gives_a_module_that_decorates():
    assert holdfast.retry is package
    assert holdfast.Policy is Policy

    @holdfast.retry(policy)
    def job():
        return 1

    assert job() == 1


@pytest.mark.parametrize(
    "lines",
    [
        "from holdfast import retry, Policy; import holdfast.retry as r; r.Budget; retry(Policy())(len)",
        "import holdfast.retry; from holdfast import retry; retry.Policy; retry()(len)",
        "from holdfast.retry import retry; import holdfast; holdfast.retry.Policy; retry()(len)",
    ],
)
def test_every_order_of_imports_gives_the_same(lines):
    subprocess.run([sys.executable, "-c", lines], check=True)


def test_the_names_are_exact_and_nothing_heavy_is_loaded():
    program = (
        "import sys, holdfast.retry as r\n"
        "assert all(hasattr(r, name) for name in r.__all__)\n"
        "heavy = {'asyncio', 'msgspec', 'kubernetes', 'urllib3', 'email', 'logging'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


def test_a_deadline_can_be_read():
    assert "s left" in repr(Deadline.after(5))
    with pytest.raises(TimeoutError, match="baking"):
        Deadline.after(0).check("baking")
