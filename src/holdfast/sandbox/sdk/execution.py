"""A command that runs in a sandbox: its input, its output as it comes, and its exit code.

Frames are Kubernetes' own (`wire.Channel`). Nothing is tried again once the command has been sent: a session
that is cut ends with an error, and whether the command went on is not known.
Not here: terminals and signals of this machine (the command line).
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, NamedTuple

import aiohttp
import msgspec

from holdfast.errors import ClusterRefusedError, DeadlineError, TemporaryError
from holdfast.sandbox.sdk.problems import AnswerLostError
from holdfast.sandbox.wire import CONNECTION_LOST, Channel, exit_code, frame, has_not_begun, resize_frame

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

_CHUNK = 1 << 16
_OUTPUTS = (Channel.STDOUT, Channel.STDERR)
_LOOK_FIRST = "Whether the command went on is not known. Look into the sandbox before you run it again."


class Output(NamedTuple):
    """A piece of what a command printed: on `Channel.STDOUT` or `Channel.STDERR`."""

    channel: Channel
    data: bytes


class ExecResult(msgspec.Struct, frozen=True, kw_only=True):
    """How a command ended, and all it printed."""

    exit_code: int
    stdout: bytes
    stderr: bytes

    @property
    def text(self) -> str:
        """What it printed on stdout, as text."""
        return self.stdout.decode(errors="replace")


class ExecSession:
    """One running command; iterate over it for its output, then ask for `exit_code`."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse[bool], what: str) -> None:
        self._socket = socket
        self._what = what
        self._exit_code: int | None = None

    @property
    def exit_code(self) -> int:
        """The command's exit code; only known once the output has been read to its end."""
        if self._exit_code is None:
            raise AnswerLostError(f"{self._what}: its end has not been seen")
        return self._exit_code

    async def write(self, data: bytes) -> None:
        """Send input; large ones go in pieces, and wait while the command does not read."""
        for start in range(0, len(data), _CHUNK):
            await self._socket.send_bytes(frame(Channel.STDIN, data[start : start + _CHUNK]))

    async def end_input(self) -> None:
        """Tell the command that no more input comes."""
        await self._socket.send_bytes(frame(Channel.CLOSE, bytes((Channel.STDIN,))))

    async def resize(self, columns: int, rows: int) -> None:
        """Tell the command's terminal its size."""
        await self._socket.send_bytes(resize_frame(columns, rows))

    async def __aiter__(self) -> AsyncIterator[Output]:
        async for message in self._socket:
            if message.type is not aiohttp.WSMsgType.BINARY or not message.data:
                continue
            channel, data = message.data[0], message.data[1:]
            if channel == Channel.STATUS:
                self._exit_code = _code_in(data, self._what)
                return
            if channel in _OUTPUTS and data:
                yield Output(Channel(channel), data)
        raise AnswerLostError(
            f"{self._what}: the session was cut{_close_words(self._socket)}",
            hint=_LOOK_FIRST,
        )

    async def collected(self, data: bytes | None = None, *, within: float | None = None) -> ExecResult:
        """Send all input, read all output, and wait for the end."""
        printed: dict[Channel, bytearray] = {channel: bytearray() for channel in _OUTPUTS}
        sending = asyncio.ensure_future(self._send_all(data)) if data is not None else None
        try:
            async with asyncio.timeout(within):
                async for output in self:
                    printed[output.channel] += output.data
        except TimeoutError as error:
            raise DeadlineError(
                f"{self._what}: it did not end within {within:g} s",
                hint="It was left running; exec into the sandbox to end it.",
            ) from error
        finally:
            if sending is not None:
                sending.cancel()
                await asyncio.gather(sending, return_exceptions=True)
        stdout, stderr = bytes(printed[Channel.STDOUT]), bytes(printed[Channel.STDERR])
        return ExecResult(exit_code=self.exit_code, stdout=stdout, stderr=stderr)

    async def _send_all(self, data: bytes) -> None:
        await self.write(data)
        await self.end_input()


def _code_in(status: bytes, what: str) -> int:
    code = exit_code(status)
    if code is not None:
        return code
    try:
        said = msgspec.json.decode(status)
        why = str(said.get("message") or said.get("reason") or "")
        is_cut = said.get("reason") == CONNECTION_LOST
    except (msgspec.DecodeError, AttributeError):
        why, is_cut = "", False
    if is_cut:
        raise AnswerLostError(f"{what}: {why}", hint=_LOOK_FIRST)
    if has_not_begun(status):
        raise TemporaryError(f"{what}: the node does not know the sandbox's pod yet, and nothing was run")
    # The runtime wraps its reason in the words of everybody who passed it on.
    short = why.rpartition("unable to start container process: ")[2].removesuffix(": unknown").strip()
    raise ClusterRefusedError(
        f"{what}: the command could not be run: {short or 'no reason was given'}",
        hint="Look at the command's name and path; `holdfast sandbox logs` shows what the sandbox printed.",
    )


def _close_words(socket: aiohttp.ClientWebSocketResponse[bool]) -> str:
    error = socket.exception()
    if error is not None:
        return f": {error}"
    return f" (close code {socket.close_code})" if socket.close_code is not None else ""
