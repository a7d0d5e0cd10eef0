"""HTTP/1.1 messages as a proxy forwards them: heads with filtered headers, and bodies with a known end."""

from __future__ import annotations

import asyncio
import re
from typing import TYPE_CHECKING

from holdfast.runtime.http_request import HTTPError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable
    from typing import Self

MAX_HEAD_BYTES = 64 * 1024
CHUNK_SIZE = 64 * 1024
_MAX_TRAILERS = 100
_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_CONTROL_CHARACTERS = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")
_LENGTH = re.compile(r"[0-9]{1,18}")
_CHUNK_LENGTH = re.compile(rb"[0-9A-Fa-f]{1,15}")
_REQUEST_LINE = re.compile(rf"({_TOKEN.pattern}) (\S+) (HTTP/1\.[01])")
_STATUS_LINE = re.compile(r"HTTP/1\.[01] ([1-5][0-9]{2})( .*)?")
_WHOLE_URL = re.compile(r"https?://[^/?#]*(.*)", re.IGNORECASE)
_FRAMING_HEADERS = {"content-length", "transfer-encoding"}
_HOP_BY_HOP_HEADERS = {
    "connection", "keep-alive", "proxy-authenticate", "proxy-authorization", "proxy-connection", "te",
    "trailer", "trailers", "upgrade",
}  # fmt: skip


class MessageHead:
    """Start line and headers of a request or response; `error_status` is the status if it is malformed."""

    kind = "message"
    error_status = 400

    def __init__(self, raw: bytes) -> None:
        self.start_line, *lines = raw.decode("latin-1").split("\r\n")
        self._headers = [(name, value.strip()) for name, _, value in (line.partition(":") for line in lines)]
        names_are_valid = all(_TOKEN.fullmatch(name) for name, _ in self._headers)
        # A line break that only one side recognizes would let a client send headers that the router drops.
        if not names_are_valid or any(_CONTROL_CHARACTERS.search(line) for line in (self.start_line, *lines)):
            raise self.syntax_error()
        self.length, self.is_chunked = self._parse_framing()

    @classmethod
    async def read(cls, reader: asyncio.StreamReader) -> Self:
        """Read a head; raise `HTTPError` if it is malformed or too long."""
        try:
            return cls((await reader.readuntil(b"\r\n\r\n"))[:-4])
        except asyncio.LimitOverrunError as error:
            raise HTTPError(431, "The headers are too long.") from error

    def syntax_error(self) -> HTTPError:
        """The error of a message that is not HTTP/1.1."""
        return HTTPError(self.error_status, f"The {self.kind} is not valid HTTP/1.1.")

    def get(self, name: str) -> str:
        """Return the value of a header; several are joined by commas, so that no check sees only one."""
        return ", ".join(value for field, value in self._headers if field.lower() == name.lower())

    def connection_options(self) -> set[str]:
        """Return the values of `Connection`, which also names headers of this connection."""
        return {option.strip().lower() for option in self.get("Connection").split(",")}

    def encode(
        self, start_line: str, *, dropped: Iterable[str] = (), added: Iterable[tuple[str, str]] = ()
    ) -> bytes:
        """Return the head for the other side, without headers of this connection."""
        excluded = _HOP_BY_HOP_HEADERS | _FRAMING_HEADERS | self.connection_options() | set(dropped)
        headers = [(name, value) for name, value in self._headers if name.lower() not in excluded]
        # Not copied: `Connection` could name them, and the other side would expect another end of the body.
        if self.is_chunked:
            headers.append(("Transfer-Encoding", "chunked"))
        elif self.length is not None:
            headers.append(("Content-Length", str(self.length)))
        lines = [f"{name}: {value}" for name, value in (*headers, *added)]
        return "\r\n".join([start_line, *lines, "", ""]).encode("latin-1")

    async def read_body(
        self, reader: asyncio.StreamReader, *, is_until_close: bool = False
    ) -> AsyncIterator[bytes]:
        """Yield the body as it is forwarded, chunks included.

        With `is_until_close`, a body without a known length ends with the connection.
        """
        try:
            if self.is_chunked:
                async for piece in self._read_chunks(reader):
                    yield piece
            elif self.length is not None:
                async for piece in self._read_exactly(reader, self.length):
                    yield piece
            elif is_until_close:
                while data := await reader.read(CHUNK_SIZE):
                    yield data
        except (asyncio.IncompleteReadError, asyncio.LimitOverrunError) as error:
            raise HTTPError(self.error_status, f"The body of the {self.kind} is incomplete.") from error

    def _parse_framing(self) -> tuple[int | None, bool]:
        encoding, length = self.get("Transfer-Encoding").lower(), self.get("Content-Length")
        # With both, two servers could disagree where the message ends.
        if encoding not in ("", "chunked") or (encoding and length):
            raise self.syntax_error()
        if length and not _LENGTH.fullmatch(length):
            raise self.syntax_error()
        return (int(length) if length else None), bool(encoding)

    async def _read_exactly(self, reader: asyncio.StreamReader, left: int) -> AsyncIterator[bytes]:
        while left:
            data = await reader.read(min(CHUNK_SIZE, left))
            if not data:
                raise asyncio.IncompleteReadError(b"", left)
            left -= len(data)
            yield data

    async def _read_chunks(self, reader: asyncio.StreamReader) -> AsyncIterator[bytes]:
        while True:
            line = await reader.readuntil(b"\r\n")
            size = line.partition(b";")[0].strip()
            if not _CHUNK_LENGTH.fullmatch(size):
                raise self.syntax_error()
            if not int(size, 16):
                break
            async for data in self._read_exactly(reader, int(size, 16)):
                yield b"%x\r\n%b\r\n" % (len(data), data)
            if await reader.readexactly(2) != b"\r\n":
                raise self.syntax_error()
        for _ in range(_MAX_TRAILERS):
            # Trailers are dropped: they could contain the headers that the router drops.
            if await reader.readuntil(b"\r\n") == b"\r\n":
                yield b"0\r\n\r\n"
                return
        raise self.syntax_error()


class RequestHead(MessageHead):
    """The head of a client's request."""

    kind = "request"

    def __init__(self, raw: bytes) -> None:
        super().__init__(raw)
        match = _REQUEST_LINE.fullmatch(self.start_line)
        if match is None:
            raise self.syntax_error()
        self.method, target, self.version = match.groups()
        if self.is_chunked and self.version == "HTTP/1.0":
            raise self.syntax_error()
        # Clients of a forward proxy send the whole URL, which may have no path.
        url = _WHOLE_URL.fullmatch(target)
        self.target = "/" + url[1].removeprefix("/") if url else target
        if not self.target.startswith("/") and self.target != "*":
            raise self.syntax_error()
        self.is_upgrade = "upgrade" in self.connection_options() and bool(self.get("Upgrade"))

    @property
    def path(self) -> str:
        """The path without the query."""
        return self.target.partition("?")[0]

    def encode_for_sandbox(self, host: str, dropped: Iterable[str]) -> bytes:
        """Return the head that the sandbox at `host` receives."""
        options = [("Connection", "close")]
        if self.is_upgrade:
            options = [("Connection", "Upgrade"), ("Upgrade", self.get("Upgrade"))]
        return self.encode(
            f"{self.method} {self.target} {self.version}",
            dropped=("host", *dropped),
            added=[("Host", host), *options],
        )


class ResponseHead(MessageHead):
    """The head of a sandbox's response."""

    kind = "response of the sandbox"
    error_status = 502

    def __init__(self, raw: bytes) -> None:
        super().__init__(raw)
        match = _STATUS_LINE.fullmatch(self.start_line)
        if match is None:
            raise self.syntax_error()
        self.status = int(match[1])

    @property
    def is_interim(self) -> bool:
        """Whether another response follows, as after `100 Continue`."""
        return self.start_line[9] == "1" and not self.is_switch

    @property
    def is_switch(self) -> bool:
        """Whether the connection leaves HTTP."""
        return self.status == 101  # noqa: PLR2004 (Switching Protocols)

    def has_body(self, method: str) -> bool:
        """Whether a body follows, after a request with this method."""
        return method != "HEAD" and self.status not in (204, 304)

    def encode_for_client(self) -> bytes:
        """Return the head that the client receives; it says that the connection ends with this response."""
        options = [("Connection", "close")]
        if self.is_switch:
            options = [("Connection", "Upgrade"), ("Upgrade", self.get("Upgrade"))]
        return self.encode(self.start_line, added=[] if self.is_interim else options)
