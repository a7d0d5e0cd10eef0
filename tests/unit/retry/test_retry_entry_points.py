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
from tests.support.virtual_time import run_virtual

import holdfast
import holdfast.retry as package
from holdfast.errors import ArgumentTypeError, UsageError
from holdfast.retry import Deadline, Policy, constant, current_deadline, retry, testing_mode

policy = Policy(attempts=3, backoff=constant(1), retry_on=OSError)


# Decorator -------------------------------------------------------------------------------------------------


def test_decorated_function_keeps_name_and_docstring(script):
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


def test_decorated_coroutine_function_stays_one(script):
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


def test_default_policy_retries_transient_errors(script):
    fn = retry()(script(ConnectionResetError(), TimeoutError(), 3))
    with testing_mode():
        assert fn() == 3


def test_decorator_operation_and_sink_take_precedence(script):
    events = []
    fn = retry(policy.replace(operation="policy's"), operation="own", on_retry=events.append)(
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
def test_non_callable_is_rejected(fn):
    with pytest.raises(ArgumentTypeError, match="fn"):
        retry(policy)(fn)


def test_option_of_policy_is_rejected_with_the_correct_form():
    with pytest.raises(ArgumentTypeError) as caught:
        retry(attempts=3)
    assert str(caught.value) == "attempts: not an option of retry; write @retry(Policy(attempts=...))"


def test_decorator_without_parentheses_is_rejected():
    with pytest.raises(ArgumentTypeError, match="policy"):

        @retry
        def job():
            pass


# Loop ------------------------------------------------------------------------------------------------------


def test_loop_ends_with_first_success(script):
    fn, numbers = script(OSError(), OSError(), "done"), []
    with testing_mode() as clock:
        for attempt in policy.retry_context("it"):
            numbers.append(attempt.number)
            with attempt:
                result = fn()
    assert result == "done"
    assert numbers == [1, 2, 3]
    assert len(clock.sleeps) == 2


def test_async_loop(script):
    fn = script(OSError(), "done")

    async def use():
        async for attempt in policy.retry_context("it"):
            with attempt:
                result = fn()
        return result

    with testing_mode():
        assert asyncio.run(use()) == "done"


def test_loop_raises_last_error_with_note(script):
    def use():
        for attempt in policy.retry_context("read it"):
            with attempt:
                script(OSError("x"))()

    with testing_mode(), pytest.raises(OSError) as caught:
        use()
    assert caught.value.__notes__[0].startswith("retry: read it: gave up after 3 attempts")


def test_loop_passes_deadline_down():
    with testing_mode():
        for attempt in policy.replace(deadline=5).retry_context():
            with attempt:
                assert 4 < current_deadline().remaining() <= 5
                assert attempt.deadline.expires == current_deadline().expires
        assert current_deadline() is None


def test_loop_without_attempt_block_is_rejected():
    with pytest.raises(UsageError, match="with attempt"):
        for _ in policy.retry_context("it"):
            pass


def test_break_and_return_are_allowed(script):
    for attempt in policy.retry_context("it"):
        with attempt:
            break
    assert current_deadline() is None


def test_ctrl_c_leaves_loop():
    def use():
        for attempt in policy.retry_context("it"):
            with attempt:
                raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        use()


# Concurrency -----------------------------------------------------------------------------------------------


def test_ctrl_c_ends_sleep_immediately():
    threading.Timer(0.1, os.kill, [os.getpid(), signal.SIGINT]).start()
    began = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        policy.replace(backoff=constant(60)).call(_refused)
    assert time.monotonic() - began < 20


def _refused():
    raise ConnectionRefusedError


def test_cancellation_ends_sleep_immediately():
    async def arefused():
        raise ConnectionRefusedError

    async def use():
        task = asyncio.create_task(policy.replace(backoff=constant(60)).acall(arefused))
        await asyncio.sleep(0.05)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    run_virtual(use())


@pytest.mark.parametrize("event", [threading.Event, asyncio.Event])
def test_threading_and_asyncio_events_stop_task(event):
    async def use():
        stop = event()
        asyncio.get_running_loop().call_later(0.05, stop.set)
        assert await package.asleep(30, stop)
        assert await package.asleep(30, stop)
        assert not await package.asleep(0.01, event())
        assert not await package.asleep(0)

    run_virtual(use())


def test_sleep_reports_whether_it_was_stopped():
    stop = threading.Event()
    assert not package.sleep(0.01)
    assert not package.sleep(0, stop)
    assert not package.sleep(0.01, stop)
    stop.set()
    assert package.sleep(30, stop)
    late = asyncio.Event()
    threading.Timer(0.05, late.set).start()
    assert package.sleep(30, late)


# Names -----------------------------------------------------------------------------------------------------


def test_retry_module_is_callable_as_decorator():
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
def test_import_order_does_not_matter(lines):
    subprocess.run([sys.executable, "-c", lines], check=True)


def test_public_names_are_exact_and_imports_are_lazy():
    program = (
        "import sys, holdfast.retry as r\n"
        "assert all(hasattr(r, name) for name in r.__all__)\n"
        "heavy = {'asyncio', 'msgspec', 'kubernetes', 'urllib3', 'email', 'logging'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


def test_deadline_repr_and_check():
    assert "s left" in repr(Deadline.after(5))
    with pytest.raises(TimeoutError, match="baking"):
        Deadline.after(0).check("baking")
