"""HTTP/1.1 messages for the proxy: read and write heads and bodies. HTTP/2 is not supported."""

from __future__ import annotations

import asyncio
from http import HTTPStatus
from typing import TYPE_CHECKING, NamedTuple

import msgspec

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

MAX_HEAD_BYTES = 256 * 1024
MAX_REQUEST_BODY_BYTES = 32 * 1024 * 1024
_READ_BYTES = 64 * 1024
_TLS_HANDSHAKE = b"\x16"


class BadMessageError(Exception):
    """The peer sent something that is not HTTP/1.1."""


class BodyFraming(NamedTuple):
    """How a body ends: by length, by chunks, or with the connection."""

    length: int | None = None
    chunked: bool = False

    @property
    def until_close(self) -> bool:
        """Whether the end of the connection ends the body."""
        return self.length is None and not self.chunked

    @property
    def end(self) -> bytes:
        """The bytes that end a body."""
        return b"0\r\n\r\n" if self.chunked else b""

    def encode(self, piece: bytes) -> bytes:
        """Encode a piece of a body."""
        return b"%x\r\n%b\r\n" % (len(piece), piece) if self.chunked else piece


CHUNKED = BodyFraming(chunked=True)


class HttpHead(msgspec.Struct):
    """Start line and headers of a message."""

    start_line: str
    headers: list[tuple[str, str]]

    def get(self, name: str) -> str | None:
        """Return the first value of a header; `name` is in lower case."""
        return next((value for key, value in self.headers if key.lower() == name), None)

    def without(self, *names: str) -> list[tuple[str, str]]:
        """Return all headers except those with these names, in lower case."""
        return [(key, value) for key, value in self.headers if key.lower() not in names]

    def encode(self) -> bytes:
        """Return the bytes of the head."""
        lines = [self.start_line, *(f"{name}: {value}" for name, value in self.headers)]
        # Latin-1 maps every byte to one character, so that headers pass through the proxy unchanged.
        return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")

    @property
    def status(self) -> int:
        """Status of a response; raises `BadMessageError` if there is none."""
        try:
            return int(self.start_line.split(" ", 2)[1])
        except (IndexError, ValueError):
            raise BadMessageError(f"no status line: {self.start_line!r}") from None

    @property
    def wants_close(self) -> bool:
        """Whether the sender closes the connection after this message."""
        return "close" in (self.get("connection") or "").lower() or self.start_line.endswith("HTTP/1.0")

    def framing(self, default: BodyFraming) -> BodyFraming:
        """Return the framing that the headers declare, else the default."""
        if "chunked" in (self.get("transfer-encoding") or "").lower():
            return CHUNKED
        length = self.get("content-length")
        if length is None:
            return default
        if not length.isdecimal():
            raise BadMessageError("the content length is not a number")
        return BodyFraming(length=int(length))


def synthetic_head(status: int, *headers: tuple[str, str]) -> bytes:
    """Return the head of a response that the proxy creates."""
    try:
        phrase = HTTPStatus(status).phrase
    except ValueError:
        phrase = "Injected"
    return HttpHead(f"HTTP/1.1 {status} {phrase}", [*headers]).encode()


async def read_head(reader: asyncio.StreamReader) -> HttpHead | None:
    """Read the next head; None if the peer has closed the connection.

    A TLS handshake on a plain connection is rejected immediately: it never completes a head, and clients that
    fall back to plain HTTP, such as container engines, would wait for the response.

    Raises:
        BadMessageError: The peer sent something else.
    """
    begun = b""
    try:
        begun = await reader.readexactly(1)
        if begun == _TLS_HANDSHAKE:
            raise BadMessageError("a TLS handshake instead of a plain HTTP request")
        raw = begun + await reader.readuntil(b"\r\n\r\n")
    except asyncio.IncompleteReadError as error:
        if not (begun + error.partial).strip():
            return None
        raise BadMessageError("the connection ended inside a head") from None
    except asyncio.LimitOverrunError:
        raise BadMessageError(f"the head exceeds {MAX_HEAD_BYTES} bytes") from None
    first, *lines = raw[:-4].decode("latin-1").split("\r\n")
    if not all(":" in line for line in lines):
        raise BadMessageError("a header line without a colon")
    pairs = (line.split(":", 1) for line in lines)
    return HttpHead(first, [(name.strip(), value.strip()) for name, value in pairs])


async def iter_body(reader: asyncio.StreamReader, framing: BodyFraming) -> AsyncIterator[bytes]:
    """Yield the body without its framing; raises `BadMessageError` if it ends early."""
    try:
        if framing.chunked:
            while size := await _chunk_size(reader):
                yield await reader.readexactly(size)
                await reader.readexactly(2)
        elif framing.length is not None:
            left = framing.length
            while left:
                piece = await reader.read(min(left, _READ_BYTES))
                if not piece:
                    raise BadMessageError("the connection ended inside a body")
                left -= len(piece)
                yield piece
        else:
            while piece := await reader.read(_READ_BYTES):
                yield piece
    except asyncio.IncompleteReadError:
        raise BadMessageError("the connection ended inside a body") from None


async def _chunk_size(reader: asyncio.StreamReader) -> int:
    line = await reader.readline()
    try:
        size = int(line.split(b";")[0], 16)
    except ValueError:
        raise BadMessageError("a chunk without a size") from None
    if size == 0:
        while (await reader.readline()).strip():
            pass  # Kubernetes clients ignore trailers
    return size


async def read_request_body(reader: asyncio.StreamReader, head: HttpHead) -> bytes:
    """Read a whole request body; raises `BadMessageError` above a maximum size."""
    content = bytearray()
    # A request without framing headers has no body; only a response may last until the connection ends.
    async for piece in iter_body(reader, head.framing(BodyFraming(length=0))):
        content += piece
        if len(content) > MAX_REQUEST_BODY_BYTES:
            raise BadMessageError(f"the request body exceeds {MAX_REQUEST_BODY_BYTES} bytes")
    return bytes(content)
