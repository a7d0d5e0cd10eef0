"""Runs one command: bounded output, and its process group is terminated at the timeout.

Background processes that a command starts survive if the command ends before the timeout.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import shlex
import signal
import socket
import subprocess
import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path

TIMEOUT_EXIT_CODE = 124
# Time between SIGTERM and SIGKILL.
_GRACE_SECONDS = 2.0
_CHUNK_SIZE = 64 * 1024


def split_command(command: str, shell: str | None) -> list[str]:
    """Return the arguments of a command; raise ValueError if it has none, or an unclosed quote."""
    if shell is not None:
        return [shell, "-c", command]
    arguments = shlex.split(command)
    if not arguments:
        raise ValueError("the command is empty")
    return arguments


def failed_start(error: Exception) -> dict[str, Any]:
    """Return the response for a command that cannot be started."""
    stderr = f"Failed to execute command: {error}"
    return {"stdout": "", "stderr": stderr, "exit_code": 1, "timed_out": False}


class CapturedOutput:
    """The first bytes of an output stream; the rest is only counted."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._buffer = bytearray()
        self.dropped = 0

    def append(self, data: bytes) -> None:
        """Keep data up to the limit, and count the rest."""
        room = self._limit - len(self._buffer)
        self._buffer += data[:room]
        self.dropped += max(0, len(data) - room)

    def text(self) -> str:
        """The kept data as text."""
        return self._buffer.decode("utf-8", "replace")


class CommandExecution:
    """A running command; it is terminated if `client`, the connection that waits for it, is closed."""

    def __init__(
        self, arguments: list[str], *, cwd: Path, output_limit: int, client: socket.socket | None = None
    ) -> None:
        # A separate session is also a process group: signals also reach processes that it starts.
        self._process = subprocess.Popen(
            arguments, cwd=cwd, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            start_new_session=True,
        )  # fmt: skip
        self._out, self._err = CapturedOutput(output_limit), CapturedOutput(output_limit)
        self._pipes: dict[Any, CapturedOutput] = {
            self._process.stdout: self._out,
            self._process.stderr: self._err,
        }
        self._client = client
        self._deadline = float("inf")
        self._is_client_gone = self._signalled = False

    def wait(self, timeout: float) -> dict[str, Any]:
        """Wait for the command to end, terminate it after `timeout` seconds, and return the response."""
        self._deadline = time.monotonic() + timeout
        try:
            with selectors.DefaultSelector() as selector:
                self._read_output(selector)
        except BaseException:
            # This thread no longer reads the output: the command would block at a full pipe.
            self._signal_group(signal.SIGKILL)
            self._process.wait()
            raise
        finally:
            for pipe in self._pipes:
                pipe.close()
        if self._signalled:
            # Processes of the group that ignored SIGTERM may outlive the command. Until wait(), the pid of
            # the command is not reused, so it still identifies the group.
            self._signal_group(signal.SIGKILL)
        code = self._process.wait()
        stderr = self._err.text()
        for name, output in (("stdout", self._out), ("stderr", self._err)):
            if output.dropped:
                stderr += f"\n[{output.dropped} more bytes of {name} were omitted]"
        if self._is_client_gone:
            stderr += "\n[terminated: the client disconnected]"
        elif self._signalled:
            stderr += f"\n[terminated after {timeout:g} seconds]"
            code = TIMEOUT_EXIT_CODE
        return {
            "stdout": self._out.text(),
            "stderr": stderr,
            "exit_code": code,
            "timed_out": self._signalled and not self._is_client_gone,
        }

    def _read_output(self, selector: selectors.BaseSelector) -> None:
        """Read until the command ends, then what is left in the pipes."""
        for pipe in self._pipes:
            os.set_blocking(pipe.fileno(), False)
            selector.register(pipe, selectors.EVENT_READ)
        if self._client is not None:
            selector.register(self._client, selectors.EVENT_READ)
        # Reports the end of the command, even if background processes keep the pipes open.
        pidfd = os.pidfd_open(self._process.pid)
        try:
            selector.register(pidfd, selectors.EVENT_READ)
            has_ended = False
            while not has_ended:
                for key, _ in selector.select(self._time_left()):
                    if key.fileobj == pidfd:
                        has_ended = True
                    elif key.fileobj is self._client:
                        self._check_client(selector)
                    elif not _drain(key.fd, self._pipes[key.fileobj]):
                        selector.unregister(key.fileobj)
                self._enforce_deadline()
            # Not until EOF: a background process may never close the pipes.
            for pipe, output in self._pipes.items():
                _drain(pipe.fileno(), output, until_empty=True)
        finally:
            os.close(pidfd)

    def _time_left(self) -> float | None:
        left = self._deadline - time.monotonic()
        return None if left == float("inf") else max(0.0, left)

    def _enforce_deadline(self) -> None:
        if time.monotonic() < self._deadline:
            return
        self._signal_group(signal.SIGKILL if self._signalled else signal.SIGTERM)
        self._deadline = float("inf") if self._signalled else time.monotonic() + _GRACE_SECONDS
        self._signalled = True

    def _check_client(self, selector: selectors.BaseSelector) -> None:
        """Terminate the command if the client disconnected; a further request of the client has to wait."""
        assert self._client is not None  # noqa: S101
        # A socket stays readable until its data is read: `select` would return immediately each time.
        selector.unregister(self._client)
        try:
            is_closed = self._client.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT) == b""
        except OSError:
            is_closed = True
        if is_closed and not self._signalled:
            self._is_client_gone = True
            self._deadline = time.monotonic()

    def _signal_group(self, number: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, number)


def _drain(descriptor: int, output: CapturedOutput, *, until_empty: bool = False) -> bool:
    """Read available data, once or until there is none; return whether more may come."""
    while True:
        try:
            data = os.read(descriptor, _CHUNK_SIZE)
        except BlockingIOError:
            return True
        output.append(data)
        if not data:
            return False
        if not until_empty:
            return True
