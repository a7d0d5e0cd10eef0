"""Sessions with a command in a sandbox: input, streamed output and exit code.

Frames are those of Kubernetes (`holdfast.api.Channel`). Once a command was sent, nothing is retried: if the
connection is lost, the session fails and the command's outcome is unknown.
"""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from holdfast.api import (
    CONNECTION_LOST,
    Channel,
    encode_frame,
    encode_resize_frame,
    parse_exit_code,
)
from holdfast.client.launch import START_HINT
from holdfast.errors import ApiRequestRejectedError, DeadlineExceededError, ResponseLostError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from holdfast.client.launch import Launch
    from holdfast.client.websocket import WebSocket
    from holdfast.errors import HoldfastError

_CHUNK_SIZE = 1 << 16
_MAX_REPEATED_BYTES = 4 << 20
_NORMAL_CLOSE_CODE = 1000
_OUTPUT_CHANNELS = (Channel.STDOUT, Channel.STDERR)
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
        launch: Launch | None = None,
        terminate: Callable[[str], Awaitable[bool]] | None = None,
        reopen: Callable[[tuple[str, ...]], Awaitable[WebSocket]] | None = None,
    ) -> None:
        self._socket = socket
        self._description = description
        self._launch = launch
        self._terminate = terminate
        self._reopen = reopen
        self._exit_code: int | None = None
        # Input that has to be sent again if the image lacks `env`; None when the command has started.
        self._unconfirmed: list[bytes] | None = [] if launch else None
        self._unconfirmed_bytes = 0
        # Output that may be the message of a failed start; None when the command has started.
        self._held: list[ExecOutput] | None = [] if launch else None

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
        """Send input. Waits while the command does not read it; after the command has ended, discards it.

        Raises:
            ResponseLostError: the connection was lost.
        """
        for start in range(0, len(data), _CHUNK_SIZE):
            await self._send(encode_frame(Channel.STDIN, data[start : start + _CHUNK_SIZE]))

    async def close_stdin(self) -> None:
        """Close the command's standard input."""
        await self._send(encode_frame(Channel.CLOSE, bytes((Channel.STDIN,))))

    async def resize(self, columns: int, rows: int) -> None:
        """Set the size of the command's terminal."""
        await self._send(encode_resize_frame(columns, rows))

    async def terminate(self) -> bool:
        """End the command and its child processes: SIGTERM, and SIGKILL after 2 seconds.

        Returns:
            Whether the command has ended. False if its processes cannot be found: the image has no `env`
            or `sh`, or the command runs with another environment or as another user.
        """
        if self._terminate is None or self._launch is None:
            return False
        return await self._terminate(self._launch.marker)

    async def __aiter__(self) -> AsyncIterator[ExecOutput]:
        async for channel, data in self._messages():
            if channel == Channel.STATUS:
                self._exit_code = self._parse_status(data)
                outputs, self._held = self._held or [], None
            else:
                outputs = self._release(ExecOutput(channel, data))
            for output in outputs:
                yield output
            if channel == Channel.STATUS:
                return
        frame = self._socket.close_frame
        reason = f" (close code {frame[0]})" if frame is not None else ""
        raise ResponseLostError(f"{self._description}: connection lost{reason}", hint=_CHECK_SANDBOX_HINT)

    async def _messages(self) -> AsyncIterator[tuple[Channel, bytes]]:
        """Iterate over channel and data of the server's messages, until the command has ended."""
        is_restarted = True
        while is_restarted:
            is_restarted = False
            async for message in self._socket:
                channel, data = (message[0], message[1:]) if message else (None, b"")
                if channel == Channel.STATUS:
                    is_restarted = await self._restart_without_env(data)
                    if is_restarted:
                        break
                if channel == Channel.STATUS or (channel in _OUTPUT_CHANNELS and data):
                    self._unconfirmed = None
                    yield Channel(channel), data

    def _release(self, output: ExecOutput) -> list[ExecOutput]:
        """Return the output that certainly comes from the command, and hold back the rest."""
        if self._held is None or self._launch is None:
            return [output]
        self._held.append(output)
        is_single = len({each.channel for each in self._held}) == 1
        if is_single and self._launch.is_start_failure(b"".join(each.data for each in self._held)):
            return []
        outputs, self._held = self._held, None
        return outputs

    def _parse_status(self, status: bytes) -> int:
        code = parse_exit_code(status)
        if code is None:
            raise _start_error(status, self._description)
        if self._held and self._launch is not None:
            message = b"".join(output.data for output in self._held)
            error = self._launch.start_error(message, code, self._description)
            if error is not None:
                raise error
        return code

    async def _restart_without_env(self, status: bytes) -> bool:
        """If the command was not started because the image has no `env`, start it without."""
        launch, frames = self._launch, self._unconfirmed
        if launch is None or self._reopen is None or parse_exit_code(status) is not None:
            return False
        error = _start_error(status, self._description)
        if isinstance(error, ResponseLostError) or not launch.is_unsupported(error.message):
            return False
        command = launch.plain_command(self._description)
        self._launch = self._held = None
        if frames is None:
            raise error
        socket = await self._reopen(command)
        # A command may end before it reads its input. The reader reports a lost connection.
        with suppress(ConnectionError):
            for frame in frames:  # another task may add frames meanwhile
                await socket.send(frame)
        self._socket, self._unconfirmed = socket, None
        return True

    async def _send(self, frame: bytes) -> None:
        is_repeatable = self._unconfirmed is not None
        if self._unconfirmed is not None:
            self._unconfirmed.append(frame)
            self._unconfirmed_bytes += len(frame)
            if self._unconfirmed_bytes > _MAX_REPEATED_BYTES:
                self._unconfirmed, is_repeatable = None, False
        try:
            await self._socket.send(frame)
        except ConnectionError as error:
            # If the frame is repeatable, the reader reports a lost connection, or has sent the frame again.
            if not is_repeatable and not self._is_ended():
                raise ResponseLostError(
                    f"{self._description}: connection lost", hint=_CHECK_SANDBOX_HINT
                ) from error

    def _is_ended(self) -> bool:
        """Whether the command has ended, even if its last output has not been read."""
        # The server closes normally only after it has sent the status.
        frame = self._socket.close_frame
        return self._exit_code is not None or (frame is not None and frame[0] == _NORMAL_CLOSE_CODE)

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
            async with end_after(self, timeout):
                async for output in self:
                    buffers[output.channel] += output.data
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


@asynccontextmanager
async def end_after(session: AsyncExecSession, timeout: float | None) -> AsyncIterator[None]:  # noqa: ASYNC109
    """End the command of a session if the block takes longer than `timeout` seconds.

    Raises:
        DeadlineExceededError: the timeout passed.
    """
    limit = asyncio.timeout(timeout)
    try:
        async with limit:
            yield
    except TimeoutError as error:
        if not limit.expired():
            raise
        is_ended = await session.terminate()
        ending = "the command was ended" if is_ended else "the command may still be running"
        raise DeadlineExceededError(
            f"{session._description}: no exit within {timeout:g} s; {ending}",  # noqa: SLF001
            hint="Allow more time, or check the sandbox before you run the command again.",
        ) from error


def _start_error(status: bytes, description: str) -> HoldfastError:
    """The error for a status without an exit code."""
    try:
        decoded = msgspec.json.decode(status)
        message = str(decoded.get("message") or decoded.get("reason") or "")
        is_lost = decoded.get("reason") == CONNECTION_LOST
    except (msgspec.DecodeError, AttributeError):
        message, is_lost = "", False
    if is_lost:
        return ResponseLostError(f"{description}: {message}", hint=_CHECK_SANDBOX_HINT)
    # Each component that passes the error on adds a prefix to the runtime's reason.
    reason = message.rpartition("unable to start container process: ")[2].removesuffix(": unknown").strip()
    return ApiRequestRejectedError(
        f"{description}: the command could not be started: {reason or 'no reason given'}", hint=START_HINT
    )
