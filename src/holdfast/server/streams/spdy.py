"""Commands in pods over SPDY/3.1: those of clients, and those that the server itself runs.

SPDY is the protocol between the API server, the kubelet and the container runtime.

Not over a WebSocket: the API server translates between the two and loses output. It sends a ping every 5 s.
When a ping reaches a container runtime that has already closed the connection, the kernel discards all output
that a slow reader has not read yet, and the API server then reports success (kubernetes issue 124571).

This client sends nothing while a command ends. All frames of a command share one TCP connection, and its
status is the last one: after the status, the output is complete, and without a status the command is lost.
"""

from __future__ import annotations

import asyncio
import struct
import zlib
from collections import deque
from contextlib import asynccontextmanager, suppress
from http.client import parse_headers
from io import BytesIO
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import aiohttp
import msgspec
from aiohttp.http import WS_CLOSED_MESSAGE

from holdfast.api import Channel, encode_frame, parse_exit_code
from holdfast.server.errors import PodResponseLostError

if TYPE_CHECKING:
    import ssl
    from collections.abc import AsyncIterator, Mapping

    from aiohttp.http_websocket import WSMessage, WSMessageTextBytes

    from holdfast.server.namespace_client import NamespaceClient
    from holdfast.server.sandboxes import PodTarget

    StreamMessage = WSMessage | WSMessageTextBytes

_CONNECT_TIMEOUT = 15.0
_UPGRADE = "SPDY/3.1"
_EXEC_PROTOCOL = "v4.channel.k8s.io"
_SWITCHING_PROTOCOLS = 101
_MAX_BODY_BYTES = 1 << 16
_MAX_QUOTED_BYTES = 300
_MAX_STDERR_BYTES = 4096
_MAX_WRITE_BYTES = 64 * 1024
_READ_BUFFER_BYTES = 1 << 18

_CONTROL_BIT = 0x80000000
_VERSION_3 = 0x80030000
_SYN_STREAM, _SYN_REPLY, _RST_STREAM, _PING = 1, 2, 3, 6
_FLAG_FIN = 1
_FRAME_HEADER = struct.Struct(">II")
_STREAM_ID_BYTES = 4

_STREAM_TYPES = {
    Channel.STATUS: b"error",
    Channel.STDIN: b"stdin",
    Channel.STDOUT: b"stdout",
    Channel.STDERR: b"stderr",
    Channel.RESIZE: b"resize",
}
_END_OF_TRANSMISSION = b"\x04"
# The container runtime ends a connection that is idle for 4 h. An idle connection has no output that a ping
# could make the kernel discard.
_IDLE_PING_SECONDS = 1800.0


class UpgradeRejectedError(Exception):
    """The API server or the kubelet has answered with an HTTP error: no command has started."""

    def __init__(self, status: int, body: bytes) -> None:
        super().__init__(f"HTTP {status}: {body[:_MAX_QUOTED_BYTES].decode('utf-8', 'replace').strip()}")
        self.status, self.body = status, body


class SpdyExecStream:
    """A command in a pod; sends and receives the frames of `holdfast.api.Channel`."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, tty: bool) -> None:
        self._reader, self._writer, self._tty = reader, writer, tty
        self._channels: dict[int, Channel] = {}
        self._unanswered: set[int] = set()
        self._received: deque[bytes] = deque()
        self._status = b""
        self._is_status_complete = self._is_closed = self._is_stdin_closed = False
        self._last_input = b"\n"

    async def open(self, request: bytes, *, stdin: bool) -> None:
        """Send the upgrade request, open the channels and wait until the other side has accepted them.

        Raises:
            UpgradeRejectedError: the response is an HTTP error.
            EOFError, OSError: the connection was lost; the command may have started.
        """
        self._writer.write(request)
        await self._read_upgrade_response()
        channels = [Channel.STATUS, Channel.STDOUT]
        channels += [Channel.STDIN] if stdin else []
        channels += [Channel.RESIZE] if self._tty else [Channel.STDERR]
        compressor = zlib.compressobj()
        # The client of a connection numbers its streams 1, 3, 5, …
        for stream_id, channel in zip(range(1, 2 * len(channels), 2), channels, strict=True):
            self._channels[stream_id] = channel
            self._write_control(_SYN_STREAM, _stream_request(stream_id, channel, compressor))
        # A frame before the reply to its stream would be dropped.
        self._unanswered = set(self._channels)
        while self._unanswered and not self._is_closed:
            await self._read_frame()
        if self._is_closed:
            raise EOFError("the connection was lost before the command started")

    async def receive(self) -> StreamMessage:
        """Return the next frame as aiohttp does, then a close message: 1000 if the status was received."""
        while not self._received and not self._is_closed:
            await self._read_frame()
        if self._received:
            return aiohttp.WSMessage(aiohttp.WSMsgType.BINARY, self._received.popleft(), None)
        if self._is_status_complete:
            return aiohttp.WSMessage(aiohttp.WSMsgType.CLOSE, aiohttp.WSCloseCode.OK, "")
        return WS_CLOSED_MESSAGE

    async def send_bytes(self, frame: bytes) -> None:
        """Send a frame; wait while the other side does not read.

        Raises:
            OSError: the connection was lost.
        """
        channel, data = frame[0], frame[1:]
        if channel == Channel.RESIZE:
            self._write_data(Channel.RESIZE, data)
        elif channel == Channel.STDIN and not self._is_stdin_closed:
            self._last_input = data[-1:] or self._last_input
            self._write_data(Channel.STDIN, data)
        elif channel == Channel.CLOSE and not self._is_stdin_closed:
            self._close_stdin()
        await self._writer.drain()

    async def close(self) -> None:
        """Close the connection; a command that still runs gets the end of its input."""
        # Not a TLS shutdown: it waits for a peer that may not read.
        self._writer.transport.abort()

    def _close_stdin(self) -> None:
        self._is_stdin_closed = True
        if not self._tty:
            self._write_data(Channel.STDIN, b"", fin=True)
            return
        # The runtime would hang up the terminal and discard its output. As for keys, the first Ctrl-D ends an
        # unfinished line, and one on an empty line ends the input.
        is_line_finished = self._last_input in (b"\n", b"\r", _END_OF_TRANSMISSION)
        self._write_data(Channel.STDIN, _END_OF_TRANSMISSION * (1 if is_line_finished else 2))

    def _write_data(self, channel: Channel, data: bytes, *, fin: bool = False) -> None:
        for stream_id, other in self._channels.items():
            if other is channel:
                self._writer.write(_FRAME_HEADER.pack(stream_id, fin << 24 | len(data)) + data)

    def _write_control(self, kind: int, data: bytes) -> None:
        self._writer.write(_FRAME_HEADER.pack(_VERSION_3 | kind, len(data)) + data)

    async def _read_upgrade_response(self) -> None:
        head = await self._reader.readuntil(b"\r\n\r\n")
        status_line, _, lines = head.partition(b"\r\n")
        words = status_line.split()
        headers = parse_headers(BytesIO(lines))
        if len(words) < 2 or not words[1].isdigit():  # noqa: PLR2004 (version and status)
            raise EOFError("not an HTTP response")
        status = int(words[1])
        if status != _SWITCHING_PROTOCOLS:
            length = headers.get("Content-Length", "")
            body = self._reader.readexactly(min(int(length), _MAX_BODY_BYTES)) if length.isdigit() else None
            raise UpgradeRejectedError(status, await (body or self._reader.read(_MAX_BODY_BYTES)))
        if headers.get("Upgrade", "").upper() != _UPGRADE:
            raise EOFError("the connection was upgraded to another protocol")

    async def _read_frame(self) -> None:
        try:
            first, second = _FRAME_HEADER.unpack(await self._read_frame_header())
            data = await self._reader.readexactly(second & 0xFFFFFF)
        except (EOFError, OSError):
            self._end()
            return
        is_last = bool(second >> 24 & _FLAG_FIN)
        if not first & _CONTROL_BIT:
            self._handle_data(first, data, is_last=is_last)
            return
        stream_id = int.from_bytes(data[:_STREAM_ID_BYTES], "big")
        kind = first & 0xFFFF
        if kind == _SYN_REPLY:
            self._unanswered.discard(stream_id)
        if kind == _RST_STREAM or (kind == _SYN_REPLY and is_last):
            self._handle_data(stream_id, b"", is_last=True)

    async def _read_frame_header(self) -> bytes:
        while True:
            try:
                async with asyncio.timeout(_IDLE_PING_SECONDS):
                    return await self._reader.readexactly(_FRAME_HEADER.size)
            except TimeoutError:
                self._write_control(_PING, (1).to_bytes(4, "big"))

    def _handle_data(self, stream_id: int, data: bytes, *, is_last: bool) -> None:
        channel = self._channels.get(stream_id)
        if channel in (Channel.STDOUT, Channel.STDERR) and data:
            self._received.append(encode_frame(Channel(channel), data))
        elif channel is Channel.STDIN and is_last:
            self._is_stdin_closed = True  # the command reads no more input
        elif channel is Channel.STATUS:
            self._status += data
            if is_last:
                self._end()

    def _end(self) -> None:
        """Deliver the status, unless the connection was lost before or in it."""
        self._is_closed = True
        try:
            msgspec.json.decode(self._status)
        except msgspec.DecodeError:
            return
        self._is_status_complete = True
        self._received.append(encode_frame(Channel.STATUS, self._status))


def _stream_request(stream_id: int, channel: Channel, compressor: zlib._Compress) -> bytes:
    """The content of a frame that opens the stream of a channel."""
    words = (b"streamtype", _STREAM_TYPES[channel])
    block = struct.pack(">I", 1) + b"".join(struct.pack(">I", len(word)) + word for word in words)
    # All frames of a connection share one compression state; the stream has no parent and no priority.
    compressed = compressor.compress(block) + compressor.flush(zlib.Z_SYNC_FLUSH)
    return struct.pack(">IIH", stream_id, 0, 0) + compressed


async def open_exec(
    url: str,
    headers: Mapping[str, str],
    tls: ssl.SSLContext | None,
    open_timeout: float,
    *,
    stdin: bool,
    tty: bool,
) -> SpdyExecStream:
    """Run the command of an exec URL.

    Args:
        url: URL with the query of the command.
        headers: headers with the credentials.
        tls: TLS context of an https URL.
        open_timeout: seconds for the response; connecting may take as long, but at most 15 seconds.
        stdin: attach standard input.
        tty: allocate a terminal.

    Raises:
        ConnectionError: the API server could not be reached; no command has started.
        UpgradeRejectedError: the response is an HTTP error; no command has started.
        EOFError, OSError: the connection was lost, or the response did not come in time; the command may have
            started.
    """
    address = urlsplit(url)
    try:
        async with asyncio.timeout(min(open_timeout, _CONNECT_TIMEOUT)):
            reader, writer = await asyncio.open_connection(
                address.hostname,
                address.port or (443 if address.scheme == "https" else 80),
                ssl=tls if address.scheme == "https" else None,
                limit=_READ_BUFFER_BYTES,
            )
    except OSError as error:  # also a TimeoutError
        raise ConnectionRefusedError(f"{address.netloc}: {str(error) or 'timed out'}") from error
    stream = SpdyExecStream(reader, writer, tty=tty)
    fields = {
        "Host": address.netloc,
        "Connection": "Upgrade",
        "Upgrade": _UPGRADE,
        "X-Stream-Protocol-Version": _EXEC_PROTOCOL,
        "Content-Length": "0",
        **headers,
    }
    lines = [
        f"POST {address.path}?{address.query} HTTP/1.1",
        *(f"{key}: {value}" for key, value in fields.items()),
    ]
    try:
        async with asyncio.timeout(open_timeout):
            await stream.open("\r\n".join([*lines, "", ""]).encode("latin-1"), stdin=stdin)
    except BaseException:
        await stream.close()
        raise
    return stream


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

    def __init__(self, stream: SpdyExecStream) -> None:
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
        with suppress(OSError):
            await self._stream.send_bytes(data)
