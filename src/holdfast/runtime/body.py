"""The body of an HTTP/1.1 request as a stream, whether its length was announced or it comes in chunks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from holdfast.runtime.refusal import Refusal

if TYPE_CHECKING:
    from collections.abc import Mapping

_LONGEST_LINE = 4096


class Source(Protocol):
    """Where the bytes come from: a buffered file on the connection."""

    def read(self, size: int, /) -> bytes: ...

    def readline(self, limit: int, /) -> bytes: ...


class Body:
    """Reads one request's body and not a byte more."""

    def __init__(self, source: Source, headers: Mapping[str, str]) -> None:
        self._source = source
        self._chunked = headers.get("Transfer-Encoding", "").strip().lower() == "chunked"
        self._left = 0
        self.ended = False
        if self._chunked:
            return
        if headers.get("Transfer-Encoding"):
            raise Refusal(501, "no transfer encoding but chunked is understood")
        length = headers.get("Content-Length", "0").strip()
        if not (length.isascii() and length.isdigit()):
            raise Refusal(400, "Content-Length is not a number")
        self._left = int(length)
        self.ended = self._left == 0

    def read(self, size: int) -> bytes:
        """Up to `size` bytes; nothing at the end."""
        if self._chunked and self._left == 0 and not self.ended:
            self._next_chunk()
        if self.ended:
            return b""
        data = self._source.read(min(size, self._left))
        if not data:
            raise Refusal(400, "the request ended in the middle of its body")
        self._left -= len(data)
        if self._left == 0:
            if self._chunked:
                self._line()
            else:
                self.ended = True
        return data

    def read_all(self, limit: int) -> bytes:
        """The whole body, refused where it is longer than it may be."""
        parts, length = [], 0
        while data := self.read(64 * 1024):
            parts.append(data)
            length += len(data)
            if length > limit:
                raise Refusal(413, f"the request is longer than {limit} bytes")
        return b"".join(parts)

    def _next_chunk(self) -> None:
        size = self._line().partition(b";")[0].strip()
        try:
            self._left = int(size, 16)
        except ValueError:
            raise Refusal(400, "a chunk does not start with its size") from None
        if self._left < 0:
            raise Refusal(400, "a chunk does not start with its size")
        if self._left == 0:
            while self._line():
                pass
            self.ended = True

    def _line(self) -> bytes:
        line = self._source.readline(_LONGEST_LINE)
        if not line.endswith(b"\n"):
            raise Refusal(400, "the request ended in the middle of its body")
        return line.rstrip(b"\r\n")
