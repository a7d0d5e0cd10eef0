"""This machine's side of a command in a sandbox: the terminal raw and restored, its size, input, signals.

Not here: the session (sandbox.sdk), and which command it is.
"""

from __future__ import annotations

import asyncio
import os
import signal
import stat
import sys
import threading
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from holdfast.errors import CancelledError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    from holdfast.sandbox.sdk.execution import ExecSession

_CHUNK = 1 << 15
_ENDING = (signal.SIGTERM, signal.SIGHUP)
STDIN, STDOUT, STDERR = 0, 1, 2


def has_input() -> bool:
    """Whether something is piped in: a pipe, a socket or a file; a terminal or /dev/null is not."""
    try:
        mode = os.fstat(STDIN).st_mode
    except OSError:
        return False
    return stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode) or stat.S_ISREG(mode)


async def attached(session: ExecSession, *, tty: bool, stdin: bool) -> int:
    """Join a session with this process's own input and output until it ends; its exit code."""
    loop = asyncio.get_running_loop()
    with _raw_terminal(tty and stdin), _ended_by_signals(loop) as ended:
        if tty:
            loop.add_signal_handler(signal.SIGWINCH, lambda: asyncio.ensure_future(_tell_size(session)))
            await _tell_size(session)
        if stdin:
            _Pump(session, loop).start()
        try:
            async for output in session:
                fd = STDERR if output.channel == STDERR else STDOUT
                await asyncio.to_thread(_write_all, fd, output.data)
        except asyncio.CancelledError:
            raise CancelledError(
                f"ended here by {signal.Signals(ended[0]).name if ended else 'Ctrl-C'}",
                hint="The command in the sandbox may still be running.",
            ) from None
        finally:
            if tty:
                loop.remove_signal_handler(signal.SIGWINCH)
    return session.exit_code


class _Pump(threading.Thread):
    """Carries input to the session; a thread of its own, for a read of a terminal or file cannot be left."""

    def __init__(self, session: ExecSession, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(name="holdfast-input", daemon=True)
        self._session = session
        self._loop = loop

    def run(self) -> None:
        with suppress(Exception):  # the session's own end is told by whoever reads from it
            while data := os.read(STDIN, _CHUNK):
                self._do(self._session.write(data))
            self._do(self._session.end_input())

    def _do(self, work: Any) -> None:
        asyncio.run_coroutine_threadsafe(work, self._loop).result()


async def _tell_size(session: ExecSession) -> None:
    """The terminal's own word: COLUMNS and LINES, where somebody has set them, do not follow it."""
    with suppress(Exception):  # no terminal has no size, and a session that is over needs none
        size = os.get_terminal_size(STDOUT if os.isatty(STDOUT) else STDIN)
        await session.resize(size.columns, size.lines)


@contextmanager
def _raw_terminal(wanted: bool) -> Iterator[None]:
    """Every key goes to the sandbox, Ctrl-C too; the terminal is as before when the block ends."""
    if not (wanted and os.isatty(STDIN)):
        yield
        return
    import termios
    import tty

    before = termios.tcgetattr(STDIN)
    tty.setraw(STDIN)
    try:
        yield
    finally:
        termios.tcsetattr(STDIN, termios.TCSADRAIN, before)


@contextmanager
def _ended_by_signals(loop: asyncio.AbstractEventLoop) -> Iterator[list[int]]:
    """Let a signal end the session in order, so that the terminal is restored."""
    task = asyncio.current_task()
    seen: list[int] = []

    def end(number: int) -> None:
        seen.append(number)
        if task is not None:
            task.cancel()

    for number in _ENDING:
        loop.add_signal_handler(number, end, number)
    try:
        yield seen
    finally:
        for number in _ENDING:
            loop.remove_signal_handler(number)


def _write_all(fd: int, data: bytes) -> None:
    sys.stdout.flush()
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]
