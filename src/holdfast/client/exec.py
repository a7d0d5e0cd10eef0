"""Sessions with a command in a sandbox: input, streamed output and exit code.

Frames are those of Kubernetes (`holdfast.api.Channel`). Once a command was sent, nothing is retried: if the
connection is lost, the session fails and the command's outcome is unknown.

Kubernetes cannot send signals to a command. `TERMINATE_SCRIPT` does it from within the sandbox.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from holdfast.api import (
    CONNECTION_LOST,
    Channel,
    encode_frame,
    encode_resize_frame,
    parse_exit_code,
)
from holdfast.errors import ApiRequestRejectedError, DeadlineExceededError, ResponseLostError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from holdfast.client.websocket import WebSocket

_CHUNK_SIZE = 1 << 16
_OUTPUT_CHANNELS = (Channel.STDOUT, Channel.STDERR)
# Signals the process group of a command, and succeeds if the command has ended. Only the container runtime
# starts processes without a parent in the container. The process must be the only one with these arguments:
# a signal must never reach another session. A command that has replaced itself (`exec`) is not found.
# `kill` of dash requires `--` before a process group, and the one of busybox does not accept it.
TERMINATE_SCRIPT = r"""
wanted=$1 same=
send() {
  kill -s "$1" -- "-$pid" 2>/dev/null || kill -s "$1" "-$pid" 2>/dev/null || kill -s "$1" "$pid" 2>/dev/null
}
for process in /proc/[0-9]*; do
  { read -r line <"$process/stat"; } 2>/dev/null || continue
  set -- ${line##*) }
  pid=${process#/proc/}
  [ "$2" = 0 ] && [ "$pid" != 1 ] && [ "$pid" != $$ ] || continue
  [ "$(tr '\0' '\n' <"$process/cmdline")" != "$wanted" ] || same="$same $pid"
done
set -- $same
[ $# = 1 ] || exit 1
pid=$1
for signal in TERM KILL; do
  send "$signal"
  for _ in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do
    [ -e "/proc/$pid/stat" ] || exit 0
    sleep 0.1
  done
done
exit 1
"""
_CHECK_SANDBOX_HINT = "The command may still be running. Check the sandbox before you run it again."


class ExecOutput(NamedTuple):
    """A chunk of output on `Channel.STDOUT` or `Channel.STDERR`."""

    channel: Channel
    data: bytes


class ExecResult(msgspec.Struct, frozen=True, kw_only=True):
    """Exit code and complete output of a command."""

    exit_code: int
    stdout: bytes
    stderr: bytes

    @property
    def text(self) -> str:
        """Standard output as text."""
        return self.stdout.decode(errors="replace")


class AsyncExecSession:
    """A running command. Iterate over it to read the output, then read `exit_code`."""

    def __init__(
        self,
        socket: WebSocket,
        description: str,
        *,
        terminate: Callable[[], Awaitable[bool]] | None = None,
    ) -> None:
        self._socket = socket
        self._description = description
        self._terminate = terminate
        self._exit_code: int | None = None

    @property
    def exit_code(self) -> int:
        """The command's exit code; known after the output has been read to its end.

        Raises:
            ResponseLostError: the end has not been read.
        """
        if self._exit_code is None:
            raise ResponseLostError(f"{self._description}: the exit code has not been received")
        return self._exit_code

    async def write(self, data: bytes) -> None:
        """Send input. Waits while the command does not read it."""
        for start in range(0, len(data), _CHUNK_SIZE):
            await self._socket.send(encode_frame(Channel.STDIN, data[start : start + _CHUNK_SIZE]))

    async def close_stdin(self) -> None:
        """Close the command's standard input."""
        await self._socket.send(encode_frame(Channel.CLOSE, bytes((Channel.STDIN,))))

    async def resize(self, columns: int, rows: int) -> None:
        """Set the size of the command's terminal."""
        await self._socket.send(encode_resize_frame(columns, rows))

    async def terminate(self) -> bool:
        """End the command: SIGTERM to its process group, and SIGKILL after 2 seconds.

        Returns:
            Whether the command has ended. False if the image has no `sh` and `tr`, or if the command cannot
            be told apart from others.
        """
        return self._terminate is not None and await self._terminate()

    async def __aiter__(self) -> AsyncIterator[ExecOutput]:
        async for message in self._socket:
            if not message:
                continue
            channel, data = message[0], message[1:]
            if channel == Channel.STATUS:
                self._exit_code = _exit_code_from_status(data, self._description)
                return
            if channel in _OUTPUT_CHANNELS and data:
                yield ExecOutput(Channel(channel), data)
        frame = self._socket.close_frame
        reason = f" (close code {frame[0]})" if frame is not None else ""
        raise ResponseLostError(f"{self._description}: connection lost{reason}", hint=_CHECK_SANDBOX_HINT)

    async def communicate(self, stdin: bytes | None = None, *, timeout: float | None = None) -> ExecResult:  # noqa: ASYNC109
        """Send all input, read all output and wait for the exit code.

        Args:
            stdin: input; standard input is closed after it.
            timeout: seconds to wait; the command is ended after that, see `terminate`.

        Raises:
            DeadlineExceededError: the timeout passed.
            ResponseLostError: the connection was lost.
        """
        buffers: dict[Channel, bytearray] = {channel: bytearray() for channel in _OUTPUT_CHANNELS}
        # Concurrent with reading: a command whose output is not read stops reading its input.
        sending = asyncio.ensure_future(self._write_all(stdin)) if stdin is not None else None
        try:
            async with asyncio.timeout(timeout):
                async for output in self:
                    buffers[output.channel] += output.data
        except TimeoutError as error:
            ending = "the command was ended" if await self.terminate() else "the command may still be running"
            raise DeadlineExceededError(
                f"{self._description}: no exit within {timeout:g} s; {ending}",
                hint="Allow more time, or check the sandbox before you run the command again.",
            ) from error
        finally:
            # A command may exit without reading its input; sending would then wait forever.
            if sending is not None:
                sending.cancel()
                await asyncio.gather(sending, return_exceptions=True)
        stdout, stderr = bytes(buffers[Channel.STDOUT]), bytes(buffers[Channel.STDERR])
        return ExecResult(exit_code=self.exit_code, stdout=stdout, stderr=stderr)

    async def _write_all(self, data: bytes) -> None:
        await self.write(data)
        await self.close_stdin()


def _exit_code_from_status(status: bytes, description: str) -> int:
    code = parse_exit_code(status)
    if code is not None:
        return code
    try:
        decoded = msgspec.json.decode(status)
        message = str(decoded.get("message") or decoded.get("reason") or "")
        is_lost = decoded.get("reason") == CONNECTION_LOST
    except (msgspec.DecodeError, AttributeError):
        message, is_lost = "", False
    if is_lost:
        raise ResponseLostError(f"{description}: {message}", hint=_CHECK_SANDBOX_HINT)
    # Each component that passes the error on adds a prefix to the runtime's reason.
    reason = message.rpartition("unable to start container process: ")[2].removesuffix(": unknown").strip()
    raise ApiRequestRejectedError(
        f"{description}: the command could not be started: {reason or 'no reason given'}",
        hint="Check the command's name and path.",
    )
