"""One client's connection: reads its requests one after the other and has each carried out.

`Exchange` is what a fault works with: one request, the way to the server, the way back to the client.
Not here: which fault strikes (`decide`) and what it does (`inject`).
"""

from __future__ import annotations

import asyncio
import socket
import struct
from contextlib import aclosing, contextmanager, suppress
from typing import TYPE_CHECKING

from holdfast.testing.faults.wire import (
    BadMessage,
    Framing,
    Head,
    body_pieces,
    ending,
    framed,
    head_bytes,
    read_body,
    read_head,
    request_framing,
    response_framing,
)

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Iterator

    from holdfast.testing.faults.log import Record
    from holdfast.testing.faults.upstream import Link, Links

_SMALL = 64 * 1024
_SWITCHING = 101
_SUCCESS = range(200, 300)
_HOP_BY_HOP = (
    "connection",
    "keep-alive",
    "proxy-connection",
    "host",
    "expect",
    "content-length",
    "transfer-encoding",
)


class UpstreamLost(Exception):  # noqa: N818 - an outcome that is handled, never shown
    """The server could not be reached, or left in the middle of its answer."""


class Client:
    """The socket of one client."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer
        self.gone = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def lost(self) -> None:
        """The client left: a stream to it ends, anything else goes on so that its outcome is known."""
        self.gone.set()
        if self._task is not None:
            self._task.cancel()

    def hung_up(self) -> None:
        """The client will say no more: whoever only listens to a stream has left by that."""
        if self._task is not None:
            self._task.cancel()

    @contextmanager
    def streaming(self) -> Iterator[None]:
        if self.gone.is_set() or self.reader.at_eof():
            raise ConnectionResetError
        self._task = asyncio.current_task()
        try:
            yield
        finally:
            self._task = None

    async def send(self, content: bytes) -> None:
        self.writer.write(content)
        await self.writer.drain()

    async def next_request(self) -> tuple[Head, bytes] | None:
        head = await read_head(self.reader)
        if head is None:
            return None
        if (head.get("expect") or "").lower() == "100-continue":
            await self.send(b"HTTP/1.1 100 Continue\r\n\r\n")
        return head, await read_body(self.reader, request_framing(head))

    def reset(self) -> None:
        """Close with a reset instead of a farewell."""
        reset(self.writer)

    def close(self) -> None:
        with suppress(Exception):
            self.writer.close()


def reset(writer: asyncio.StreamWriter) -> None:
    """Drop a connection so that the other side sees ECONNRESET."""
    sock = writer.get_extra_info("socket")
    with suppress(OSError, AttributeError):  # a closed transport has no socket any more
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()


class Response:
    """The server's answer: its head now, its body as it comes."""

    def __init__(self, head: Head, method: str, link: Link, links: Links) -> None:
        self.head = head
        self.framing = response_framing(head, method)
        self.link = link
        self._links = links

    async def pieces(self) -> AsyncGenerator[bytes, None]:
        """The body; read to its end it leaves the connection to the next request."""
        complete = False
        try:
            async for piece in body_pieces(self.link.reader, self.framing):
                yield piece
            complete = not self.framing.until_close and not self.head.wants_close
        except (OSError, BadMessage) as error:
            raise UpstreamLost(str(error)) from error
        finally:
            if complete:
                self._links.give_back(self.link)
            else:
                self.link.close()

    async def drain(self) -> None:
        async for _ in self.pieces():
            pass


class Exchange:
    """One request and what becomes of it."""

    def __init__(self, client: Client, head: Head, body: bytes, record: Record, links: Links) -> None:
        self.client = client
        self.head = head
        self.record = record
        self._body = body
        self._links = links

    async def forward(self) -> Response:
        """Have the server carry the request out; from here on its outcome is the server's."""
        try:
            link = await self._links.take()
        except OSError as error:
            raise UpstreamLost(f"not reached: {error}") from error
        self.record.forwarded = True
        self.record.committed = None if self.record.is_write else False
        try:
            link.writer.write(self._outgoing(self._links.authority))
            await link.writer.drain()
            answer = await self._answer_head(link)
        except (OSError, BadMessage) as error:
            link.close()
            raise UpstreamLost(str(error)) from error
        except BaseException:
            link.close()
            raise
        self.record.upstream_status = answer.status
        self.record.committed = self.record.is_write and answer.status in _SUCCESS
        return Response(answer, self.record.method, link, self._links)

    def _outgoing(self, authority: str) -> bytes:
        headers = [("Host", authority), *self.head.without(*_HOP_BY_HOP)]
        if self._body or self.record.is_write:
            headers.append(("Content-Length", str(len(self._body))))
        if self.head.get("upgrade") is not None:
            headers.append(("Connection", "Upgrade"))
        return head_bytes(self.head.first, headers) + self._body

    async def _answer_head(self, link: Link) -> Head:
        while True:
            answer = await read_head(link.reader)
            if answer is None:
                raise BadMessage("no answer")
            if answer.status >= _SWITCHING:
                return answer

    async def start_answer(self, response: Response, framing: Framing | None = None) -> None:
        """Send the server's head on, with another framing if asked for."""
        await self.client.send(self.answer_head(response, framing))

    def answer_head(self, response: Response, framing: Framing | None = None) -> bytes:
        self.record.status = response.head.status
        headers = response.head.headers
        if framing is not None:
            headers = response.head.without("content-length", "transfer-encoding")
            headers.append(("Transfer-Encoding", "chunked"))
        return head_bytes(response.head.first, headers)

    async def relay(self, response: Response) -> bool:
        """Send the whole answer on; true when the connection can be used again."""
        if response.head.status == _SWITCHING:
            await self._tunnel(response)
            return False
        framing = response.framing
        if framing.length is not None and framing.length <= _SMALL:
            pieces = [piece async for piece in response.pieces()]
            await self.client.send(self.answer_head(response) + b"".join(pieces))
        else:
            await self._stream(response)
        return not (framing.until_close or response.head.wants_close or self.head.wants_close)

    async def _stream(self, response: Response) -> None:
        """Piece by piece as it comes; whoever ends it early, the server's side is ended too."""
        try:
            with self.client.streaming():
                await self.start_answer(response)
                async with aclosing(response.pieces()) as pieces:
                    async for piece in pieces:
                        await self.client.send(framed(piece, response.framing))
                await self.client.send(ending(response.framing))
        except BaseException:
            response.link.close()
            raise

    async def _tunnel(self, response: Response) -> None:
        """After an upgrade (exec, attach, port-forward) bytes go both ways until one side ends."""
        link = response.link
        await self.start_answer(response)
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
        while piece := await source.read(_SMALL):
            target.write(piece)
            await target.drain()


class Watcher(asyncio.StreamReaderProtocol):
    """A stream protocol that also tells when its client has left."""

    def __init__(self, limit: int, connected: Callable[[Client], None]) -> None:
        loop = asyncio.get_running_loop()
        super().__init__(asyncio.StreamReader(limit=limit, loop=loop), self._accepted, loop=loop)
        self._connected = connected
        self._client: Client | None = None

    def _accepted(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._client = Client(reader, writer)
        self._connected(self._client)

    def eof_received(self) -> bool | None:
        keep_open = super().eof_received()
        if self._client is not None:
            self._client.hung_up()
        return keep_open

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        if self._client is not None:
            self._client.lost()
