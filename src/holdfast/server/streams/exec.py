"""Exec streams into pods: reopened while the kubelet does not know the pod, and as a command for the server.

A kubelet that has just started does not know running pods for a moment, although they are ready. Its first
message reports that, and no command has started then: the exec can be repeated, with the input sent so far. A
stream that breaks later is never reopened, because the command may have started.
"""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING

import aiohttp
from aiohttp.http import WS_CLOSED_MESSAGE

from holdfast.api import Channel, encode_frame, is_pod_unknown_to_kubelet, parse_exit_code
from holdfast.errors import HoldfastError, TemporaryError
from holdfast.retry import Policy, exponential
from holdfast.server.errors import PodResponseLostError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from aiohttp.http_websocket import WSMessage, WSMessageTextBytes

    from holdfast.server.namespace_client import NamespaceClient
    from holdfast.server.sandboxes import PodTarget

    PodWebSocket = aiohttp.ClientWebSocketResponse[bool]
    StreamMessage = WSMessage | WSMessageTextBytes

_MAX_BUFFERED_BYTES = 256 * 1024
_FRAME_OVERHEAD_BYTES = 64
"""Memory that a buffered frame uses besides its data; bounds the number of small frames."""
_REOPEN_DEADLINE = 15.0


class _PodUnknownError(TemporaryError):
    """The kubelet does not know the pod yet; carries its message."""

    def __init__(self, first_message: StreamMessage) -> None:
        super().__init__("the kubelet does not know the pod yet")
        self.first_message = first_message


_REOPEN_POLICY = Policy(
    attempts=None, deadline=_REOPEN_DEADLINE, backoff=exponential(0.1, cap=1.0), retry_on=_PodUnknownError
)


class RetryingExecStream:
    """An exec WebSocket that `receive` reopens while the kubelet does not know the pod."""

    def __init__(self, open_socket: Callable[[], Awaitable[PodWebSocket]], socket: PodWebSocket) -> None:
        self._open_socket, self._socket = open_socket, socket
        self._buffered: list[bytes] | None = []
        self._buffered_bytes = 0
        # Serializes `send_bytes` and `_reopen`: a frame sent during a reopen would be lost or sent twice.
        self._send_lock = asyncio.Lock()

    async def receive(self) -> StreamMessage:
        """Return the next message from the pod."""
        if self._buffered is None:
            return await self._socket.receive()
        message = await self._first_message()
        if _is_pod_unknown(message):
            message = await self._reopen_until_known(message)
        self._buffered = None  # the command has started or ended
        return message

    async def send_bytes(self, data: bytes) -> None:
        """Send a frame; it is buffered and sent again if the stream is reopened."""
        async with self._send_lock:
            self._buffer(data)
            try:
                await self._socket.send_bytes(data)
            except (aiohttp.ClientError, OSError):
                # A stream that the kubelet rejects is closed; `_reopen` sends the buffered frame again.
                if self._buffered is None:
                    raise

    async def close(self) -> None:
        """Close the connection to the pod."""
        await self._socket.close()

    def _buffer(self, data: bytes) -> None:
        if self._buffered is not None:
            self._buffered.append(data)
            self._buffered_bytes += len(data) + _FRAME_OVERHEAD_BYTES
            if self._buffered_bytes > _MAX_BUFFERED_BYTES:
                # Without the complete input, the command cannot be started again.
                self._buffered = None

    async def _reopen_until_known(self, first_message: StreamMessage) -> StreamMessage:
        """Return the first message of a started command, or the kubelet's last message if it never starts."""
        try:
            return await _REOPEN_POLICY.acall(self._reopen)
        except _PodUnknownError as error:
            return error.first_message
        except PodResponseLostError:  # the command may have started this time
            return WS_CLOSED_MESSAGE
        except HoldfastError:
            return first_message

    async def _reopen(self) -> StreamMessage:
        async with self._send_lock:
            with suppress(aiohttp.ClientError, OSError):
                await self._socket.close()
            if self._buffered is None:
                raise TemporaryError("the input exceeds the buffer")
            self._socket = await self._open_socket()
            with suppress(aiohttp.ClientError, OSError):  # the first message tells why sending failed
                for data in self._buffered:
                    await self._socket.send_bytes(data)
        message = await self._first_message()
        if _is_pod_unknown(message):
            raise _PodUnknownError(message)
        return message

    async def _first_message(self) -> StreamMessage:
        """Return the first message with content: each channel may begin with an empty frame."""
        while True:
            message = await self._socket.receive()
            if message.type is not aiohttp.WSMsgType.BINARY or len(message.data) > 1:
                return message


def _is_pod_unknown(message: StreamMessage) -> bool:
    if message.type is not aiohttp.WSMsgType.BINARY:
        return False
    return bool(message.data[:1] == bytes((Channel.STATUS,)) and is_pod_unknown_to_kubelet(message.data))


_MAX_STDERR_BYTES = 4096
_MAX_WRITE_BYTES = 64 * 1024


@asynccontextmanager
async def run_in_pod(
    cluster: NamespaceClient, target: PodTarget, argv: list[str], *, stdin: bool = False
) -> AsyncIterator[PodCommand]:
    """Run a command in a pod while the block runs."""
    stream = await cluster.open_exec_stream(target, argv, stdin=stdin)
    try:
        yield PodCommand(stream)
    finally:
        await stream.close()


class PodCommand:
    """A command that the server runs in a pod. Memory use is constant: a slow reader blocks the command."""

    def __init__(self, stream: RetryingExecStream) -> None:
        self._stream = stream
        self._stderr = bytearray()
        self._status: bytes | None = None
        self._stdin_closed = False

    @property
    def stderr(self) -> str:
        """The beginning of the standard error output."""
        return self._stderr.decode("utf-8", "replace").strip()

    async def read(self) -> bytes:
        """Return the next piece of standard output; empty at the end."""
        while self._status is None:
            message = await self._stream.receive()
            if message.type is not aiohttp.WSMsgType.BINARY:
                raise PodResponseLostError("the connection to the pod was lost before the command ended")
            data: bytes = message.data
            if data[:1] == bytes((Channel.STDOUT,)) and len(data) > 1:
                return data[1:]
            if data[:1] == bytes((Channel.STDERR,)):
                self._stderr += data[1 : 1 + max(0, _MAX_STDERR_BYTES - len(self._stderr))]
            elif data[:1] == bytes((Channel.STATUS,)) and len(data) > 1:
                self._status = data[1:]
                if is_pod_unknown_to_kubelet(self._status):
                    raise TemporaryError("the kubelet does not know the pod of the sandbox yet")
        return b""

    async def write(self, data: bytes) -> None:
        """Write to standard input, as long as the command runs; blocks while the command does not read."""
        view = memoryview(data)
        while view and self._status is None and not self._stdin_closed:
            await self._send_frame(encode_frame(Channel.STDIN, bytes(view[:_MAX_WRITE_BYTES])))
            view = view[_MAX_WRITE_BYTES:]

    async def close_stdin(self) -> None:
        """Close standard input."""
        if self._status is None and not self._stdin_closed:
            self._stdin_closed = True
            await self._send_frame(encode_frame(Channel.CLOSE, bytes((Channel.STDIN,))))

    async def wait(self) -> int | None:
        """Read the rest of the output and return the exit code."""
        while await self.read():
            pass
        return parse_exit_code(self._status or b"")

    async def _send_frame(self, data: bytes) -> None:
        # A command that has ended accepts no input; `wait` returns its exit code.
        with suppress(aiohttp.ClientError, ConnectionError):
            await self._stream.send_bytes(data)
