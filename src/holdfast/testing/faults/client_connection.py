"""One connection of a client to the proxy, and the exchange that an injector works with.

`ProxyExchange` has one request, the connection to the server and the connection to the client.
"""

from __future__ import annotations

import asyncio
import socket
import struct
from contextlib import aclosing, contextmanager, suppress
from typing import TYPE_CHECKING

from holdfast.testing.faults.http1 import (
    BadMessageError,
    HttpHead,
    encode_body_piece,
    encode_head,
    end_of_body,
    iter_body,
    read_body,
    read_head,
    request_framing,
    response_framing,
)

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Iterator

    from holdfast.testing.faults.request_log import RequestRecord
    from holdfast.testing.faults.upstream import UpstreamConnection, UpstreamPool

_BUFFER_BYTES = 64 * 1024
_SWITCHING_PROTOCOLS = 101
_SUCCESS_STATUSES = range(200, 300)
_HOP_BY_HOP_HEADERS = (
    "connection",
    "keep-alive",
    "proxy-connection",
    "host",
    "expect",
    "content-length",
    "transfer-encoding",
)


class UpstreamLostError(Exception):
    """The server could not be reached, or closed the connection during its response."""


class ClientConnection:
    """The connection of one client."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer
        self.disconnected = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def end_stream(self) -> None:
        """End the response that is streamed, if any; other requests continue, so their outcome is known."""
        if self._task is not None:
            self._task.cancel()

    @contextmanager
    def streaming(self) -> Iterator[None]:
        """Let the end of the client's connection, or of its data, end the block: nobody reads the stream."""
        if self.disconnected.is_set() or self.reader.at_eof():
            raise ConnectionResetError
        self._task = asyncio.current_task()
        try:
            yield
        finally:
            self._task = None

    async def send(self, content: bytes) -> None:
        self.writer.write(content)
        await self.writer.drain()

    async def read_request(self) -> tuple[HttpHead, bytes] | None:
        """Read the next request with its body; None if the client has closed the connection."""
        head = await read_head(self.reader)
        if head is None:
            return None
        if (head.get("expect") or "").lower() == "100-continue":
            await self.send(b"HTTP/1.1 100 Continue\r\n\r\n")
        return head, await read_body(self.reader, request_framing(head))

    def reset(self) -> None:
        """Close the connection so that the client sees ECONNRESET."""
        sock = self.writer.get_extra_info("socket")
        with suppress(OSError, AttributeError):  # a closed transport has no socket
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.writer.transport.abort()

    def close(self) -> None:
        with suppress(Exception):
            self.writer.close()


class UpstreamResponse:
    """The response of the server: the head, and the body as it arrives."""

    def __init__(
        self, head: HttpHead, method: str, connection: UpstreamConnection, pool: UpstreamPool
    ) -> None:
        self.head = head
        self.framing = response_framing(head, method)
        self.connection = connection
        self._pool = pool

    async def iter_body(self) -> AsyncGenerator[bytes, None]:
        """Yield the body; once it is complete, the connection returns to the pool."""
        complete = False
        try:
            async for piece in iter_body(self.connection.reader, self.framing):
                yield piece
            complete = not self.framing.until_close and not self.head.wants_close
        except (OSError, BadMessageError) as error:
            raise UpstreamLostError(str(error)) from error
        finally:
            if complete:
                self._pool.release(self.connection)
            else:
                self.connection.close()

    async def drain(self) -> None:
        """Read and drop the rest of the body."""
        async for _ in self.iter_body():
            pass


class ProxyExchange:
    """One request and its response."""

    def __init__(
        self, client: ClientConnection, head: HttpHead, body: bytes, record: RequestRecord, pool: UpstreamPool
    ) -> None:
        self.client = client
        self.head = head
        self.record = record
        self._body = body
        self._pool = pool

    async def forward(self) -> UpstreamResponse:
        """Send the request to the server, which determines its outcome from now on."""
        try:
            link = await self._pool.acquire()
        except OSError as error:
            raise UpstreamLostError(f"not reached: {error}") from error
        self.record.forwarded = True
        self.record.committed = None if self.record.is_write else False
        try:
            link.writer.write(self._request_bytes(self._pool.host))
            await link.writer.drain()
            head = await self._read_response_head(link)
        except (OSError, BadMessageError) as error:
            link.close()
            raise UpstreamLostError(str(error)) from error
        except BaseException:
            link.close()
            raise
        self.record.upstream_status = head.status
        self.record.committed = self.record.is_write and head.status in _SUCCESS_STATUSES
        return UpstreamResponse(head, self.record.method, link, self._pool)

    def _request_bytes(self, host: str) -> bytes:
        headers = [("Host", host), *self.head.without(*_HOP_BY_HOP_HEADERS)]
        if self._body or self.record.is_write:
            headers.append(("Content-Length", str(len(self._body))))
        if self.head.get("upgrade") is not None:
            headers.append(("Connection", "Upgrade"))
        return encode_head(self.head.start_line, headers) + self._body

    async def _read_response_head(self, connection: UpstreamConnection) -> HttpHead:
        while True:
            head = await read_head(connection.reader)
            if head is None:
                raise BadMessageError("no response")
            if head.status >= _SWITCHING_PROTOCOLS:
                return head

    def response_head(self, response: UpstreamResponse, *, chunked: bool = False) -> bytes:
        """Record the status of a response and encode its head; `chunked` replaces its framing."""
        self.record.status = response.head.status
        headers = response.head.headers
        if chunked:
            headers = response.head.without("content-length", "transfer-encoding")
            headers.append(("Transfer-Encoding", "chunked"))
        return encode_head(response.head.start_line, headers)

    async def relay(self, response: UpstreamResponse) -> bool:
        """Send the whole response; returns whether the connection can be reused."""
        if response.head.status == _SWITCHING_PROTOCOLS:
            await self._tunnel(response)
            return False
        framing = response.framing
        if framing.length is not None and framing.length <= _BUFFER_BYTES:
            pieces = [piece async for piece in response.iter_body()]
            await self.client.send(self.response_head(response) + b"".join(pieces))
        else:
            await self._stream_response(response)
        return not (framing.until_close or response.head.wants_close or self.head.wants_close)

    async def _stream_response(self, response: UpstreamResponse) -> None:
        """Relay the body as it arrives; if the client disconnects, the server's connection is closed too."""
        try:
            with self.client.streaming():
                await self.client.send(self.response_head(response))
                async with aclosing(response.iter_body()) as pieces:
                    async for piece in pieces:
                        await self.client.send(encode_body_piece(piece, response.framing))
                await self.client.send(end_of_body(response.framing))
        except BaseException:
            response.connection.close()
            raise

    async def _tunnel(self, response: UpstreamResponse) -> None:
        """Relay bytes in both directions after an upgrade (exec, attach, port-forward), until one ends."""
        link = response.connection
        await self.client.send(self.response_head(response))
        ways = [
            asyncio.ensure_future(_pump(self.client.reader, link.writer)),
            asyncio.ensure_future(_pump(link.reader, self.client.writer)),
        ]
        try:
            await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for way in ways:
                way.cancel()
            link.close()


async def _pump(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        while piece := await source.read(_BUFFER_BYTES):
            target.write(piece)
            await target.drain()


class ClientProtocol(asyncio.StreamReaderProtocol):
    """Stream protocol that also reports when its client disconnects."""

    def __init__(self, limit: int, on_connect: Callable[[ClientConnection], None]) -> None:
        loop = asyncio.get_running_loop()
        super().__init__(asyncio.StreamReader(limit=limit, loop=loop), self._on_accept, loop=loop)
        self._on_connect = on_connect
        self._client: ClientConnection | None = None

    def _on_accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._client = ClientConnection(reader, writer)
        self._on_connect(self._client)

    def eof_received(self) -> bool | None:
        keep_open = super().eof_received()
        if self._client is not None:
            self._client.end_stream()
        return keep_open

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        if self._client is not None:
            self._client.disconnected.set()
            self._client.end_stream()
