"""HTTP/1.1 request bodies and multipart uploads as streams."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping


class HTTPError(Exception):
    """A request is rejected with a status and a message."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.message = message


_MAX_LINE_BYTES = 4096
_CHUNK_SIZE_PATTERN = re.compile(rb"[0-9A-Fa-f]+")


class BodySource(Protocol):
    """A buffered reader on the connection."""

    def read(self, size: int, /) -> bytes: ...

    def readline(self, limit: int, /) -> bytes: ...


class RequestBody:
    """Reads exactly the body of one request, with a length or in chunks."""

    def __init__(self, source: BodySource, headers: Mapping[str, str]) -> None:
        self._source = source
        # Transfer-Encoding takes precedence over Content-Length (RFC 9112, section 6.3).
        self._chunked = headers.get("Transfer-Encoding", "").strip().lower() == "chunked"
        self._remaining = 0
        self.is_complete = False
        if self._chunked:
            return
        if headers.get("Transfer-Encoding"):
            raise HTTPError(501, "the only supported transfer encoding is chunked")
        length = headers.get("Content-Length", "0").strip()
        if not (length.isascii() and length.isdigit()):
            raise HTTPError(400, "Content-Length is not a number")
        self._remaining = int(length)
        self.is_complete = self._remaining == 0

    def read(self, size: int) -> bytes:
        """Return up to `size` bytes; empty at the end."""
        if self._chunked and self._remaining == 0 and not self.is_complete:
            self._read_chunk_size()
        if self.is_complete:
            return b""
        data = self._source.read(min(size, self._remaining))
        if not data:
            raise HTTPError(400, "the request body is incomplete")
        self._remaining -= len(data)
        if self._remaining == 0:
            if not self._chunked:
                self.is_complete = True
            elif self._read_line():
                raise HTTPError(400, "a chunk does not end with a line break")
        return data

    def read_all(self, limit: int) -> bytes:
        """Return the whole body; reject a body longer than `limit`."""
        parts, length = [], 0
        while data := self.read(64 * 1024):
            parts.append(data)
            length += len(data)
            if length > limit:
                raise HTTPError(413, f"the request is longer than {limit} bytes")
        return b"".join(parts)

    def _read_chunk_size(self) -> None:
        size = self._read_line().partition(b";")[0].strip()
        # `int` alone would also accept signs, underscores and `0x`.
        if not _CHUNK_SIZE_PATTERN.fullmatch(size):
            raise HTTPError(400, "a chunk does not start with its size")
        self._remaining = int(size, 16)
        if self._remaining == 0:
            while self._read_line():
                pass
            self.is_complete = True

    def _read_line(self) -> bytes:
        line = self._source.readline(_MAX_LINE_BYTES)
        if not line.endswith(b"\n"):
            raise HTTPError(400, "the request body is incomplete")
        return line.rstrip(b"\r\n")


_MAX_PART_HEADER_BYTES = 16 * 1024
_CHUNK_SIZE = 64 * 1024
_PARAMETER_PATTERN = re.compile(r';\s*([A-Za-z0-9*_-]+)=(?:"([^"]*)"|([^;\s]*))')
_BOUNDARY_PATTERN = re.compile(r"[0-9A-Za-z'()+_,./:=? -]{1,70}")


class MultipartUpload:
    """The file in a `multipart/form-data` upload, read as a stream: it is never held in memory."""

    def __init__(self, body: RequestBody, content_type: str) -> None:
        kind, _, _ = content_type.partition(";")
        if kind.strip().lower() != "multipart/form-data":
            raise HTTPError(415, "an upload must be multipart/form-data")
        boundary = _parse_parameters(content_type).get("boundary", "")
        if not _BOUNDARY_PATTERN.fullmatch(boundary):
            raise HTTPError(400, "the upload has no valid boundary")
        self._body = body
        self._delimiter = b"\r\n--" + boundary.encode()
        # The first delimiter has no preceding line break; with this one it looks like the others.
        self._buffer = b"\r\n"
        self.filename = self._find_file()

    def content(self) -> Iterator[bytes]:
        """Yield the content of the file, then discard the rest of the request."""
        yield from self._read_until_delimiter()
        while self._body.read(_CHUNK_SIZE):
            pass

    def _find_file(self) -> str:
        for _ in self._read_until_delimiter():
            pass
        while self._has_next_part():
            head = _parse_parameters(self._read_disposition())
            if head.get("name") == "file" and "filename" in head:
                return head["filename"]
            for _ in self._read_until_delimiter():
                pass
        raise HTTPError(400, "the upload has no part `file` with a file name")

    def _read_until_delimiter(self) -> Iterator[bytes]:
        # A delimiter may be split between two reads: keep the bytes that could be its beginning.
        keep = len(self._delimiter) - 1
        while True:
            end = self._buffer.find(self._delimiter)
            if end >= 0:
                data, self._buffer = self._buffer[:end], self._buffer[end + len(self._delimiter) :]
                if data:
                    yield data
                return
            if len(self._buffer) > keep:
                yield self._buffer[:-keep]
                self._buffer = self._buffer[-keep:]
            self._read_more()

    def _has_next_part(self) -> bool:
        while len(self._buffer) < 2:  # noqa: PLR2004 (a delimiter is followed by two dashes or a line break)
            self._read_more()
        if self._buffer.startswith(b"--"):
            return False
        if not self._buffer.startswith(b"\r\n"):
            raise HTTPError(400, "the parts of the upload are not separated by the boundary")
        return True

    def _read_disposition(self) -> str:
        while (end := self._buffer.find(b"\r\n\r\n")) < 0:
            if len(self._buffer) > _MAX_PART_HEADER_BYTES:
                raise HTTPError(400, "the headers of a part are too long")
            self._read_more()
        head, self._buffer = self._buffer[2:end], self._buffer[end + 4 :]
        for line in head.decode("utf-8", "surrogateescape").split("\r\n"):
            name, _, value = line.partition(":")
            if name.strip().lower() == "content-disposition":
                return value
        return ""

    def _read_more(self) -> None:
        data = self._body.read(_CHUNK_SIZE)
        if not data:
            raise HTTPError(400, "the upload ended before its last boundary")
        self._buffer += data


def _parse_parameters(value: str) -> dict[str, str]:
    """What follows the first word of a header: `; name="value"`, any number of times."""
    return {
        name.lower(): _unquote(quoted or bare) for name, quoted, bare in _PARAMETER_PATTERN.findall(value)
    }


def _unquote(text: str) -> str:
    """As HTML forms quote: a quote and line ends are percent-encoded, a backslash may be doubled."""
    text = text.replace("\\\\", "\\")
    for code, letter in (("%22", '"'), ("%0D", "\r"), ("%0A", "\n")):
        text = text.replace(code, letter)
    return text
