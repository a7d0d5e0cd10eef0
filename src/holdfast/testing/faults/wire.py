"""HTTP/1.1 as it stands on the wire: heads and bodies, read and written piece by piece.

Just what a proxy needs to keep one message apart from the next. Not here: connections (`upstream`,
`connection`), and HTTP/2, which is not offered.
"""

from __future__ import annotations

import asyncio
from http import HTTPStatus
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable

MAX_HEAD = 256 * 1024
MAX_REQUEST_BODY = 32 * 1024 * 1024
_PIECE = 64 * 1024
_NO_BODY = frozenset({204, 304})
_SWITCHING = 101
_TLS_HANDSHAKE = b"\x16"


class BadMessage(Exception):  # noqa: N818 - a message, not a failure of ours
    """The other side sent what is no HTTP/1.1."""


class Head(msgspec.Struct):
    """First line and header lines of a message."""

    first: str
    headers: list[tuple[str, str]]

    def get(self, name: str) -> str | None:
        for key, value in self.headers:
            if key.lower() == name:
                return value
        return None

    def without(self, *names: str) -> list[tuple[str, str]]:
        return [(key, value) for key, value in self.headers if key.lower() not in names]

    @property
    def status(self) -> int:
        try:
            return int(self.first.split(" ", 2)[1])
        except (IndexError, ValueError):
            raise BadMessage(f"no status line: {self.first!r}") from None

    @property
    def wants_close(self) -> bool:
        return "close" in (self.get("connection") or "").lower() or self.first.endswith("HTTP/1.0")


class Framing(msgspec.Struct, frozen=True):
    """How the end of a body is told: a length, chunks, or the end of the connection."""

    length: int | None = None
    chunked: bool = False

    @property
    def until_close(self) -> bool:
        return self.length is None and not self.chunked


async def read_head(reader: asyncio.StreamReader) -> Head | None:
    """The next head, or None when the other side has nothing more to say.

    Whoever begins with TLS where none is spoken is told so at once: in a handshake no head ever ends, and
    clients that then go on without TLS, as container engines do, would wait for an answer first.
    """
    begun = b""
    try:
        begun = await reader.readexactly(1)
        if begun == _TLS_HANDSHAKE:
            raise BadMessage("TLS where plain HTTP is spoken")
        raw = begun + await reader.readuntil(b"\r\n\r\n")
    except asyncio.IncompleteReadError as error:
        if not (begun + error.partial).strip():
            return None
        raise BadMessage("the connection ended inside a head") from None
    except asyncio.LimitOverrunError:
        raise BadMessage("a head without end") from None
    first, *lines = raw[:-4].decode("latin-1").split("\r\n")
    headers: list[tuple[str, str]] = []
    for line in lines:
        name, colon, value = line.partition(":")
        if not colon:
            raise BadMessage("a header line without a colon")
        headers.append((name.strip(), value.strip()))
    return Head(first, headers)


def request_framing(head: Head) -> Framing:
    return _framing(head, Framing(length=0))


def response_framing(head: Head, method: str) -> Framing:
    if method == "HEAD" or head.status in _NO_BODY or head.status <= _SWITCHING:
        return Framing(length=0)
    return _framing(head, Framing())


def _framing(head: Head, default: Framing) -> Framing:
    if "chunked" in (head.get("transfer-encoding") or "").lower():
        return Framing(chunked=True)
    length = head.get("content-length")
    if length is None:
        return default
    if not length.isdecimal():
        raise BadMessage("a content length that is no number")
    return Framing(length=int(length))


async def body_pieces(reader: asyncio.StreamReader, framing: Framing) -> AsyncIterator[bytes]:
    """The body without its framing, as it arrives; raises `BadMessage` when it ends early."""
    try:
        if framing.chunked:
            while size := await _chunk_size(reader):
                yield await reader.readexactly(size)
                await reader.readexactly(2)
        elif framing.length is not None:
            left = framing.length
            while left:
                piece = await reader.read(min(left, _PIECE))
                if not piece:
                    raise BadMessage("the connection ended inside a body")
                left -= len(piece)
                yield piece
        else:
            while piece := await reader.read(_PIECE):
                yield piece
    except asyncio.IncompleteReadError:
        raise BadMessage("the connection ended inside a body") from None


async def _chunk_size(reader: asyncio.StreamReader) -> int:
    line = await reader.readline()
    try:
        size = int(line.split(b";")[0], 16)
    except ValueError:
        raise BadMessage("a chunk without a size") from None
    if size == 0:
        while (await reader.readline()).strip():
            pass  # trailers mean nothing to a Kubernetes client
    return size


async def read_body(reader: asyncio.StreamReader, framing: Framing) -> bytes:
    """A whole request body, up to a bound."""
    pieces: list[bytes] = []
    size = 0
    async for piece in body_pieces(reader, framing):
        size += len(piece)
        if size > MAX_REQUEST_BODY:
            raise BadMessage("a request body without end")
        pieces.append(piece)
    return b"".join(pieces)


def head_bytes(first: str, headers: Iterable[tuple[str, str]]) -> bytes:
    lines = [first, *(f"{name}: {value}" for name, value in headers)]
    return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")


def status_line(status: int) -> str:
    try:
        phrase = HTTPStatus(status).phrase
    except ValueError:
        phrase = "Injected"
    return f"HTTP/1.1 {status} {phrase}"


def framed(piece: bytes, framing: Framing) -> bytes:
    """A piece of a body as it goes out under that framing."""
    return b"%x\r\n%b\r\n" % (len(piece), piece) if framing.chunked else piece


def ending(framing: Framing) -> bytes:
    """What tells the other side that the body is complete."""
    return b"0\r\n\r\n" if framing.chunked else b""
