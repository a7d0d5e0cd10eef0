"""The plain SDK's thread: results, errors, Ctrl-C, deadlines, forks and iterators come through it."""

import asyncio
import os
import signal
import subprocess
import sys
import threading

import pytest

from holdfast.client import portal
from holdfast.errors import UsageError
from holdfast.retry import Deadline, current_deadline

INTERRUPTED = """
import asyncio, os, signal, threading
from holdfast.client import portal

async def work():
    print("begun", flush=True)
    try:
        await asyncio.Event().wait()
    finally:
        for _ in range(10):
            await asyncio.sleep(0)
        print("cleaned up", flush=True)

try:
    portal.run(work())
except KeyboardInterrupt:
    print("interrupted", flush=True)
"""


EXITING = """
import asyncio, sys
from holdfast.client import portal

async def leave(error):
    raise error

async def leave_in_task(error):
    await asyncio.gather(leave(error))

for work in (leave, leave_in_task):
    for error in (SystemExit(3), KeyboardInterrupt()):
        try:
            portal.run(work(error))
        except BaseException as caught:
            assert caught is error, caught
portal.run(asyncio.sleep(0))
print("still running")
"""


async def value(given):
    await asyncio.sleep(0)
    return given


def test_results_and_errors_are_passed_through():
    async def fail():
        raise ValueError("mine")

    assert portal.run(value(7)) == 7
    with pytest.raises(ValueError, match="mine"):
        portal.run(fail())


def test_threads_share_one_loop():
    loops = []

    async def which():
        loops.append(asyncio.get_running_loop())

    threads = [threading.Thread(target=lambda: portal.run(which())) for _ in range(10)]
    for each in threads:
        each.start()
    for each in threads:
        each.join(10)
    assert len(loops) == 10
    assert len(set(loops)) == 1


def test_ctrl_c_cancels_work_and_waits_for_cleanup():
    running = subprocess.Popen([sys.executable, "-c", INTERRUPTED], stdout=subprocess.PIPE, text=True)
    assert running.stdout.readline() == "begun\n"
    running.send_signal(signal.SIGINT)
    assert running.communicate(timeout=30)[0] == "cleaned up\ninterrupted\n"
    assert running.returncode == 0


def test_exit_on_the_loop_is_raised_in_the_caller_and_ends_no_loop():
    """In a separate process: without a running loop, the calls would wait forever."""
    ended = subprocess.run(
        [sys.executable, "-c", EXITING], capture_output=True, text=True, timeout=30, check=False
    )
    assert (ended.returncode, ended.stdout) == (0, "still running\n"), ended.stderr


def test_surrounding_deadline_applies_inside_loop():
    async def left():
        return current_deadline().remaining()

    with Deadline.after(5):
        assert 0 < portal.run(left()) <= 5


def test_iterator_is_closed_with_its_consumer():
    closed = []

    async def count():
        try:
            for number in range(100):
                yield number
        finally:
            closed.append(True)

    found = portal.iterate(count())
    assert [next(found), next(found)] == [0, 1]
    found.close()
    assert closed == [True]
    assert list(portal.iterate(count())) == list(range(100))


def test_forked_child_gets_new_loop():
    portal.run(value(1))
    child = os.fork()
    if child == 0:
        os._exit(0 if portal.run(value(2)) == 2 else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_fork_while_another_thread_starts_the_loop():
    """The child gets a copy of the lock, but not the thread that would release it."""
    with portal._LOOP._lock:
        child = os.fork()
        if child == 0:
            signal.alarm(20)  # ends a child that waits for the lock
            os._exit(0 if portal.run(value(2)) == 2 else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_call_from_inside_loop_is_rejected():
    async def inside():
        portal.run(value(1))

    with pytest.raises(UsageError, match="from its own callbacks"):
        portal.run(inside())


class Interrupted:
    """The loop, with a Ctrl-C that falls right before or right after something is handed to it."""

    def __init__(self, loop, begun=None):
        self._loop, self._begun, self._left = loop, begun, 1

    def __getattr__(self, name):
        return getattr(self._loop, name)

    def call_soon_threadsafe(self, work):
        if not self._left:
            return self._loop.call_soon_threadsafe(work)
        self._left -= 1
        if self._begun is not None:
            self._loop.call_soon_threadsafe(work)
            assert self._begun.wait(10)
        raise KeyboardInterrupt


@pytest.mark.parametrize("handed_over", [True, False])
def test_ctrl_c_during_submit_leaves_nothing_running(monkeypatch, handed_over):
    closed, begun = [], threading.Event()

    async def waits():
        try:
            begun.set()
            await asyncio.Event().wait()
            yield 1
        finally:
            closed.append(True)

    loop = Interrupted(portal._LOOP.get(), begun if handed_over else None)
    monkeypatch.setattr(portal._LOOP, "get", lambda: loop)
    source = waits()
    with pytest.raises(KeyboardInterrupt):
        list(portal.iterate(source))
    assert closed == ([True] if handed_over else [])
    assert not source.ag_running
