"""One connection of a client to the proxy, and the exchange that an injector works with.

`ProxyExchange` has one request, the connection to the client and the connection to the server.
"""

from __future__ import annotations

import asyncio
import socket
import struct
from contextlib import aclosing, contextmanager, suppress
from dataclasses import dataclass
from http import HTTPStatus
from typing import TYPE_CHECKING

from holdfast.testing.faults.http1 import MAX_HEAD_BYTES, HttpHead, read_head, read_request_body

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from holdfast.testing.faults.request_log import RequestRecord
    from holdfast.testing.faults.upstream import UpstreamConnection, UpstreamPool

_BUFFER_BYTES = 64 * 1024
_SUCCESS_STATUSES = range(200, 300)
# Headers of one connection: the proxy sets its own, and sends each request body with its length.
_HOP_BY_HOP_HEADERS = (
    "connection",
    "keep-alive",
    "proxy-connection",
    "host",
    "expect",
    "content-length",
    "transfer-encoding",
)


class ClientConnection(asyncio.StreamReaderProtocol):
    """The connection of one client, as the protocol of its transport.

    When the client disconnects, a response that is streamed to it ends. Other requests continue, so that the
    log shows their outcome.
    """

    writer: asyncio.StreamWriter

    def __init__(self, on_connect: Callable[[ClientConnection], None]) -> None:
        loop = asyncio.get_running_loop()
        self.reader = asyncio.StreamReader(limit=MAX_HEAD_BYTES, loop=loop)
        super().__init__(self.reader, self._on_accept, loop=loop)
        self.disconnected = asyncio.Event()
        self._on_connect = on_connect
        self._streaming_task: asyncio.Task[None] | None = None

    def _on_accept(self, _reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.writer = writer
        self._on_connect(self)

    def eof_received(self) -> bool | None:
        """Handle the end of the client's data: a client that only reads a stream is gone."""
        keep_open = super().eof_received()
        self._cancel_streaming()
        return keep_open

    def connection_lost(self, exc: Exception | None) -> None:
        """Handle the end of the connection, by either side."""
        super().connection_lost(exc)
        self.disconnected.set()
        self._cancel_streaming()

    def _cancel_streaming(self) -> None:
        if self._streaming_task is not None:
            self._streaming_task.cancel()

    @contextmanager
    def streaming(self) -> Iterator[None]:
        """Cancel the block when the client disconnects.

        Raises:
            ConnectionResetError: The client has disconnected already.
        """
        if self.disconnected.is_set() or self.reader.at_eof():
            raise ConnectionResetError
        self._streaming_task = asyncio.current_task()
        try:
            yield
        finally:
            self._streaming_task = None

    async def send(self, content: bytes) -> None:
        """Send bytes; raises an OSError if the client has disconnected."""
        self.writer.write(content)
        await self.writer.drain()

    async def read_request(self) -> tuple[HttpHead, bytes] | None:
        """Read the head and the body of the next request; None if the client has closed the connection."""
        head = await read_head(self.reader)
        if head is None:
            return None
        if (head.get("expect") or "").lower() == "100-continue":
            await self.send(b"HTTP/1.1 100 Continue\r\n\r\n")
        return head, await read_request_body(self.reader, head)

    def reset(self) -> None:
        """Close the connection with a TCP reset: the client sees ECONNRESET."""
        sock = self.writer.get_extra_info("socket")
        with suppress(OSError, AttributeError):  # a closed transport has no socket
            # A linger time of 0 makes the kernel send RST instead of FIN, and discard what is not sent yet.
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.writer.transport.abort()

    def close(self) -> None:
        """Close the connection regularly, after the bytes that were sent."""
        self.writer.close()


@dataclass
class ProxyExchange:
    """One request and its response."""

    client: ClientConnection
    head: HttpHead
    body: bytes
    record: RequestRecord
    pool: UpstreamPool
    server: UpstreamConnection | None = None

    async def forward(self) -> UpstreamConnection:
        """Send the request to the server, which determines its outcome from now on.

        Returns:
            The server's connection, with the head of the response.

        Raises:
            UpstreamLostError: The server cannot be reached, or closed the connection.
        """
        server = self.server = await self.pool.acquire()
        self.record.forwarded = True
        # Unknown from here on: if the connection breaks, the server may have committed the write.
        self.record.committed = None if self.record.is_write else False
        await server.send_request(self._request_bytes(), self.record.method)
        self.record.upstream_status = server.head.status
        self.record.committed = self.record.is_write and server.head.status in _SUCCESS_STATUSES
        return server

    def _request_bytes(self) -> bytes:
        headers = [("Host", self.pool.host), *self.head.without(*_HOP_BY_HOP_HEADERS)]
        if self.body or self.record.is_write:
            headers.append(("Content-Length", str(len(self.body))))
        if self.head.get("upgrade") is not None:
            headers.append(("Connection", "Upgrade"))
        return HttpHead(self.head.start_line, headers).encode() + self.body

    async def discard_response(self) -> None:
        """Send the request to the server and read its response to the end."""
        async for _ in (await self.forward()).iter_body():
            pass

    async def send_response(self, server: UpstreamConnection, body: bytes = b"") -> None:
        """Send the head of the server's response to the client, and bytes of its body."""
        self.record.status = server.head.status
        await self.client.send(server.head.encode() + body)

    async def relay(self, server: UpstreamConnection) -> bool:
        """Send the whole response; returns whether the client's connection can be reused."""
        if server.head.status == HTTPStatus.SWITCHING_PROTOCOLS:
            await self._tunnel(server)
            return False
        framing = server.framing
        if framing.length is not None and framing.length <= _BUFFER_BYTES:
            # The server's connection is reusable after this read, even if the client has disconnected.
            await self.send_response(server, b"".join([piece async for piece in server.iter_body()]))
        else:
            with self.client.streaming():
                await self.send_response(server)
                async with aclosing(server.iter_body()) as pieces:
                    async for piece in pieces:
                        await self.client.send(framing.encode(piece))
                await self.client.send(framing.end)
        return not (framing.until_close or server.head.wants_close or self.head.wants_close)

    async def _tunnel(self, server: UpstreamConnection) -> None:
        """Relay bytes in both directions after an upgrade (exec, attach, port-forward), until one ends."""
        await self.send_response(server)
        ways = [
            asyncio.ensure_future(_pump(self.client.reader, server.writer)),
            asyncio.ensure_future(_pump(server.reader, self.client.writer)),
        ]
        try:
            await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for way in ways:
                way.cancel()

    def release_server(self) -> None:
        """Return the server's connection to the pool, or close it if its response was not read to the end."""
        if self.server is not None:
            self.pool.release(self.server)


async def _pump(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        while piece := await source.read(_BUFFER_BYTES):
            target.write(piece)
            await target.drain()
