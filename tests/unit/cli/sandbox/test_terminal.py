"""A session on the local terminal: signals, raw mode and window size."""

import asyncio
import gc
import os
import pty
import signal
import termios
import tty
import weakref

import pytest

from holdfast.cli.sandbox import terminal
from holdfast.errors import OperationCancelledError


@pytest.fixture(autouse=True)
def local_terminal(monkeypatch):
    """A pseudo-terminal as stdin and stdout."""
    controller, device = pty.openpty()
    monkeypatch.setattr(terminal, "STDIN", device)
    monkeypatch.setattr(terminal, "STDOUT", device)
    yield device
    os.close(controller)
    os.close(device)


class FakeSession:
    """A session without output, whose window can be resized."""

    exit_code = 7

    def __init__(self):
        self.resized = 0

    async def resize(self, columns, lines):
        self.resized += 1

    async def wait(self):
        """What happens before the session ends."""

    async def __aiter__(self):
        await self.wait()
        return
        yield


def attach(session, *, stdin=False):
    return asyncio.run(terminal.attach(session, tty=True, stdin=stdin))


def test_exit_code_of_the_session_is_returned():
    session = FakeSession()
    assert attach(session) == 7
    assert session.resized == 1


def test_signal_during_the_first_resize_ends_the_session():
    class Session(FakeSession):
        async def resize(self, columns, lines):
            os.kill(os.getpid(), signal.SIGTERM)
            await asyncio.Event().wait()

    with pytest.raises(OperationCancelledError, match="session: ended by SIGTERM"):
        attach(Session())


def test_signals_are_handled_before_raw_mode(monkeypatch, local_terminal):
    before, set_raw, handlers = termios.tcgetattr(local_terminal), tty.setraw, []

    def record_and_set_raw(fd):
        handlers.extend(map(signal.getsignal, (signal.SIGTERM, signal.SIGHUP)))
        set_raw(fd)

    monkeypatch.setattr(tty, "setraw", record_and_set_raw)
    monkeypatch.setattr(terminal, "_pump_stdin", lambda session, loop: None)
    assert attach(FakeSession(), stdin=True) == 7
    assert len(handlers) == 2
    assert signal.SIG_DFL not in handlers
    assert termios.tcgetattr(local_terminal) == before


def test_running_resize_is_not_collected():
    class Session(FakeSession):
        def __init__(self):
            super().__init__()
            self.started, self.finished = asyncio.Event(), asyncio.Event()

        async def resize(self, columns, lines):
            if self.resized:
                waiter = asyncio.get_running_loop().create_future()
                self.waiter = weakref.ref(waiter)
                self.started.set()
                await waiter
                self.finished.set()
            self.resized += 1

        async def wait(self):
            os.kill(os.getpid(), signal.SIGWINCH)
            await self.started.wait()
            gc.collect()
            waiter = self.waiter()
            assert waiter is not None, "the task that waits for it was collected"
            waiter.set_result(None)
            await self.finished.wait()

    session = Session()
    assert attach(session) == 7
    assert session.resized == 2


@pytest.mark.parametrize(("is_ended", "hint"), [(True, "was ended"), (False, "may still be running")])
def test_signal_without_terminal_ends_the_command(is_ended, hint):
    class Session(FakeSession):
        async def wait(self):
            os.kill(os.getpid(), signal.SIGTERM)
            await asyncio.Event().wait()

        async def terminate(self):
            return is_ended

    with pytest.raises(OperationCancelledError, match="session: ended by SIGTERM") as caught:
        asyncio.run(terminal.attach(Session(), tty=False, stdin=False))
    assert caught.value.hint == f"The command in the sandbox {hint}."
