"""Attach an exec session to the local terminal: raw mode, window size, stdin, signals."""

from __future__ import annotations

import asyncio
import os
import signal
import stat
import sys
import threading
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from holdfast.errors import OperationCancelledError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from holdfast.client import AsyncExecSession

_CHUNK_SIZE = 1 << 15
_TERMINATION_SIGNALS = (signal.SIGTERM, signal.SIGHUP)
STDIN, STDOUT, STDERR = 0, 1, 2


def has_piped_input() -> bool:
    """Whether stdin is a pipe, a socket or a file, but not a terminal or /dev/null."""
    try:
        mode = os.fstat(STDIN).st_mode
    except OSError:
        return False
    return stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode) or stat.S_ISREG(mode)


async def attach(
    session: AsyncExecSession,
    *,
    tty: bool,
    stdin: bool,
    timeout: float | None = None,  # noqa: ASYNC109
) -> int:
    """Connect a session to stdin, stdout and stderr until it ends; return its exit code.

    Raises:
        DeadlineExceededError: the session took longer than `timeout` seconds; the command is ended.
        OperationCancelledError: a signal or Ctrl-C ended the session on this side.
    """
    from holdfast.client import end_after

    loop = asyncio.get_running_loop()
    resizes: set[asyncio.Task[None]] = set()  # the loop itself keeps only weak references to tasks

    def resize() -> None:
        task = loop.create_task(_send_terminal_size(session))
        resizes.add(task)
        task.add_done_callback(resizes.discard)

    # Signals first: one that arrives in raw mode without a handler would leave the terminal in that mode.
    with _cancel_on_signals(loop) as received, _raw_terminal(tty and stdin):
        try:
            if tty:
                loop.add_signal_handler(signal.SIGWINCH, resize)
                await _send_terminal_size(session)
            if stdin:
                # A daemon thread: a blocked read of the terminal must not keep the process from exiting.
                threading.Thread(target=_pump_stdin, args=(session, loop), daemon=True).start()
            async with end_after(session, timeout):
                async for output in session:
                    fd = STDERR if output.channel == STDERR else STDOUT
                    # In a thread: a slow reader blocks the write, and the loop must still handle signals.
                    await asyncio.to_thread(_write_all, fd, output.data)
        except asyncio.CancelledError:
            # Cancelled by `_cancel_on_signals`, or by `asyncio.run`, which cancels its task on Ctrl-C.
            # A command on a terminal gets a hangup when the session ends.
            is_ended = False
            with suppress(asyncio.CancelledError):  # another signal
                is_ended = not tty and await session.terminate()
            raise OperationCancelledError(
                f"session: ended by {signal.Signals(received[0]).name if received else 'Ctrl-C'}",
                hint=f"The command in the sandbox {'was ended' if is_ended else 'may still be running'}.",
            ) from None
        finally:
            if tty:
                loop.remove_signal_handler(signal.SIGWINCH)
    return session.exit_code


def _pump_stdin(session: AsyncExecSession, loop: asyncio.AbstractEventLoop) -> None:
    """Copy stdin to the session; runs in a thread, because a read of a terminal cannot be cancelled."""
    with suppress(Exception):  # the reader of the session reports why it ended
        while data := os.read(STDIN, _CHUNK_SIZE):
            # Wait for each write: stdin is read only as fast as the command consumes it.
            asyncio.run_coroutine_threadsafe(session.write(data), loop).result()
        asyncio.run_coroutine_threadsafe(session.close_stdin(), loop).result()


async def _send_terminal_size(session: AsyncExecSession) -> None:
    """Send the size of the terminal itself: COLUMNS and LINES do not change when the window does."""
    with suppress(Exception):  # not a terminal, or the session has ended
        size = os.get_terminal_size(STDOUT if os.isatty(STDOUT) else STDIN)
        await session.resize(size.columns, size.lines)


@contextmanager
def _raw_terminal(enabled: bool) -> Iterator[None]:
    """Send every key to the sandbox, including Ctrl-C; restore the terminal when the block ends."""
    if not (enabled and os.isatty(STDIN)):
        yield
        return
    import termios
    import tty

    previous_mode = termios.tcgetattr(STDIN)
    tty.setraw(STDIN)
    try:
        yield
    finally:
        termios.tcsetattr(STDIN, termios.TCSADRAIN, previous_mode)


@contextmanager
def _cancel_on_signals(loop: asyncio.AbstractEventLoop) -> Iterator[list[int]]:
    """Cancel the session on a signal, so that the terminal is restored; yield the received signals."""
    task = asyncio.current_task()
    received: list[int] = []

    def cancel(number: int) -> None:
        received.append(number)
        if task is not None:
            task.cancel()

    for number in _TERMINATION_SIGNALS:
        loop.add_signal_handler(number, cancel, number)
    try:
        yield received
    finally:
        for number in _TERMINATION_SIGNALS:
            loop.remove_signal_handler(number)


def _write_all(fd: int, data: bytes) -> None:
    # `os.write` bypasses the buffer of `sys.stdout`: text that is still in it must come first.
    sys.stdout.flush()
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]
