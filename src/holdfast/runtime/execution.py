"""One shell command with its output: bounded in memory, ended with its whole group when its time is over.

What a command leaves running in the background goes on when the shell ends by itself. Not here: HTTP.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import socket
import subprocess
import time
from typing import TYPE_CHECKING, Any

from holdfast.runtime.refusal import Refusal

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

TIMED_OUT = 124
_GRACE = 2.0
"""How long a command may take to end itself before it is killed."""
_PIECE = 64 * 1024


class Output:
    """The beginning of what a command writes; the rest is counted and let go."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._kept = bytearray()
        self.dropped = 0

    def add(self, data: bytes) -> None:
        room = self._limit - len(self._kept)
        self._kept += data[:room]
        self.dropped += max(0, len(data) - room)

    def text(self) -> str:
        return self._kept.decode("utf-8", "replace")


class Execution:
    """A command that runs; `peer` is the connection of who waits for it, and ends it by leaving."""

    def __init__(self, command: str, *, folder: Path, limit: int, peer: socket.socket | None = None) -> None:
        if "\0" in command:
            raise Refusal(400, "a command has no zero bytes in it")
        try:
            self._process = subprocess.Popen(
                ["/bin/sh", "-c", command], cwd=folder, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                stderr=subprocess.PIPE, start_new_session=True,
            )  # fmt: skip
        except OSError as error:
            raise Refusal(400, f"the command cannot be started: {error.strerror}") from error
        self._out, self._err = Output(limit), Output(limit)
        self._peer = peer
        self._end_by = float("inf")
        self._timed_out = self._signalled = False

    def result(self, seconds: float | None) -> dict[str, Any]:
        """Wait for its end, no longer than that; then what the client is told."""
        if seconds is not None:
            self._end_by = time.monotonic() + seconds
        with self._closing(), selectors.DefaultSelector() as selector:
            self._watch(selector)
        if self._signalled:
            # The shell may have gone before those of its group that did not listen. Until it is waited for,
            # the number is still the group's.
            self._signal(signal.SIGKILL)
        code = self._process.wait()
        stderr = self._err.text()
        for name, output in (("stdout", self._out), ("stderr", self._err)):
            if output.dropped:
                stderr += f"\n[{output.dropped} more bytes of {name} were left out]"
        if self._timed_out:
            stderr += f"\n[ended after {seconds:g} seconds]" if seconds else "\n[ended: nobody waits for it]"
            code = TIMED_OUT
        return {
            "stdout": self._out.text(),
            "stderr": stderr,
            "exit_code": 128 - code if code < 0 else code,
            "timed_out": self._timed_out,
        }

    @contextlib.contextmanager
    def _closing(self) -> Iterator[None]:
        assert self._process.stdout is not None  # noqa: S101 (asked for above)
        assert self._process.stderr is not None  # noqa: S101
        try:
            yield
        except BaseException:
            self._signal(signal.SIGKILL)
            self._process.wait()
            raise
        finally:
            self._process.stdout.close()
            self._process.stderr.close()

    def _watch(self, selector: selectors.BaseSelector) -> None:
        """Read until the shell has ended, and then what is still in the pipes."""
        pipes = {self._process.stdout: self._out, self._process.stderr: self._err}
        for pipe in pipes:
            assert pipe is not None  # noqa: S101 (asked for above)
            os.set_blocking(pipe.fileno(), False)
            selector.register(pipe, selectors.EVENT_READ)
        if self._peer is not None:
            selector.register(self._peer, selectors.EVENT_READ)
        ended = os.pidfd_open(self._process.pid)
        try:
            selector.register(ended, selectors.EVENT_READ)
            over = False
            while not over:
                for key, _ in selector.select(self._patience()):
                    if key.fileobj == ended:
                        over = True
                    elif key.fileobj is self._peer:
                        self._listen(selector)
                    elif not _drain(key.fd, pipes[key.fileobj]):  # type: ignore[index]
                        selector.unregister(key.fileobj)
                self._end_in_time()
            for pipe, output in pipes.items():
                assert pipe is not None  # noqa: S101 (asked for above)
                _drain(pipe.fileno(), output, whole=True)
        finally:
            os.close(ended)

    def _patience(self) -> float | None:
        left = self._end_by - time.monotonic()
        return None if left == float("inf") else max(0.0, left)

    def _end_in_time(self) -> None:
        if time.monotonic() < self._end_by:
            return
        self._signal(signal.SIGKILL if self._signalled else signal.SIGTERM)
        self._timed_out = True
        self._end_by = float("inf") if self._signalled else time.monotonic() + _GRACE
        self._signalled = True

    def _listen(self, selector: selectors.BaseSelector) -> None:
        """Whoever asked has said something: goodbye, or a next request that has to wait."""
        assert self._peer is not None  # noqa: S101 (only called for one)
        selector.unregister(self._peer)
        try:
            gone = self._peer.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT) == b""
        except OSError:
            gone = True
        if gone:
            self._end_by = time.monotonic()

    def _signal(self, number: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, number)


def _drain(descriptor: int, output: Output, *, whole: bool = False) -> bool:
    """Read what is there, once or until nothing is; whether more may come."""
    while True:
        try:
            data = os.read(descriptor, _PIECE)
        except BlockingIOError:
            return True
        output.add(data)
        if not data:
            return False
        if not whole:
            return True
