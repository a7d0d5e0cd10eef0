"""HTTP/1.1 framing for the proxy: read and write heads and bodies. HTTP/2 is not supported."""

from __future__ import annotations

import asyncio
from http import HTTPStatus
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable

MAX_HEAD_BYTES = 256 * 1024
MAX_REQUEST_BODY_BYTES = 32 * 1024 * 1024
_READ_BYTES = 64 * 1024
_BODILESS_STATUSES = frozenset({204, 304})
_SWITCHING_PROTOCOLS = 101
_TLS_HANDSHAKE = b"\x16"


class BadMessageError(Exception):
    """The peer sent something that is not HTTP/1.1."""


class HttpHead(msgspec.Struct):
    """Start line and headers of a message."""

    start_line: str
    headers: list[tuple[str, str]]

    def get(self, name: str) -> str | None:
        """Return the first value of a header; `name` is in lower case."""
        for key, value in self.headers:
            if key.lower() == name:
                return value
        return None

    def without(self, *names: str) -> list[tuple[str, str]]:
        """Return all headers except those with these names, in lower case."""
        return [(key, value) for key, value in self.headers if key.lower() not in names]

    @property
    def status(self) -> int:
        try:
            return int(self.start_line.split(" ", 2)[1])
        except (IndexError, ValueError):
            raise BadMessageError(f"no status line: {self.start_line!r}") from None

    @property
    def wants_close(self) -> bool:
        return "close" in (self.get("connection") or "").lower() or self.start_line.endswith("HTTP/1.0")


class BodyFraming(msgspec.Struct, frozen=True):
    """How a body ends: by length, by chunks, or with the connection."""

    length: int | None = None
    chunked: bool = False

    @property
    def until_close(self) -> bool:
        return self.length is None and not self.chunked


async def read_head(reader: asyncio.StreamReader) -> HttpHead | None:
    """Read the next head; None if the peer has closed the connection.

    A TLS handshake on a plain connection is rejected immediately: it never completes a head, and clients that
    fall back to plain HTTP, such as container engines, would wait for the response.
    """
    begun = b""
    try:
        begun = await reader.readexactly(1)
        if begun == _TLS_HANDSHAKE:
            raise BadMessageError("TLS where plain HTTP is spoken")
        raw = begun + await reader.readuntil(b"\r\n\r\n")
    except asyncio.IncompleteReadError as error:
        if not (begun + error.partial).strip():
            return None
        raise BadMessageError("the connection ended inside a head") from None
    except asyncio.LimitOverrunError:
        raise BadMessageError("a head without end") from None
    first, *lines = raw[:-4].decode("latin-1").split("\r\n")
    headers: list[tuple[str, str]] = []
    for line in lines:
        name, colon, value = line.partition(":")
        if not colon:
            raise BadMessageError("a header line without a colon")
        headers.append((name.strip(), value.strip()))
    return HttpHead(first, headers)


def request_framing(head: HttpHead) -> BodyFraming:
    """Return how the body of a request ends; by default, a request has none."""
    return _framing(head, BodyFraming(length=0))


def response_framing(head: HttpHead, method: str) -> BodyFraming:
    """Return how the body of a response to a method ends; by default, with the connection."""
    if method == "HEAD" or head.status in _BODILESS_STATUSES or head.status <= _SWITCHING_PROTOCOLS:
        return BodyFraming(length=0)
    return _framing(head, BodyFraming())


def _framing(head: HttpHead, default: BodyFraming) -> BodyFraming:
    if "chunked" in (head.get("transfer-encoding") or "").lower():
        return BodyFraming(chunked=True)
    length = head.get("content-length")
    if length is None:
        return default
    if not length.isdecimal():
        raise BadMessageError("the content length is not a number")
    return BodyFraming(length=int(length))


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


async def read_body(reader: asyncio.StreamReader, framing: BodyFraming) -> bytes:
    """Read a whole request body, up to a maximum size."""
    pieces: list[bytes] = []
    size = 0
    async for piece in iter_body(reader, framing):
        size += len(piece)
        if size > MAX_REQUEST_BODY_BYTES:
            raise BadMessageError("a request body without end")
        pieces.append(piece)
    return b"".join(pieces)


def encode_head(start_line: str, headers: Iterable[tuple[str, str]]) -> bytes:
    lines = [start_line, *(f"{name}: {value}" for name, value in headers)]
    return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")


def status_line(status: int) -> str:
    try:
        phrase = HTTPStatus(status).phrase
    except ValueError:
        phrase = "Injected"
    return f"HTTP/1.1 {status} {phrase}"


def encode_body_piece(piece: bytes, framing: BodyFraming) -> bytes:
    """Encode a piece of a body for a framing."""
    return b"%x\r\n%b\r\n" % (len(piece), piece) if framing.chunked else piece


def end_of_body(framing: BodyFraming) -> bytes:
    """Return the bytes that end a body."""
    return b"0\r\n\r\n" if framing.chunked else b""
