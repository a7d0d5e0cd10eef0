"""The file in a `multipart/form-data` upload, read as it comes: no upload is ever held in memory."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from holdfast.runtime.refusal import Refusal

if TYPE_CHECKING:
    from collections.abc import Iterator

    from holdfast.runtime.body import Body

_LONGEST_HEAD = 16 * 1024
_PIECE = 64 * 1024
_PARAMETER = re.compile(r';\s*([A-Za-z0-9*_-]+)=(?:"([^"]*)"|([^;\s]*))')
_BOUNDARY = re.compile(r"[0-9A-Za-z'()+_,./:=? -]{1,70}")


class Upload:
    """One request's file: its name as the client gave it, and its content."""

    def __init__(self, body: Body, content_type: str) -> None:
        kind, _, _ = content_type.partition(";")
        if kind.strip().lower() != "multipart/form-data":
            raise Refusal(415, "an upload is multipart/form-data")
        boundary = _parameters(content_type).get("boundary", "")
        if not _BOUNDARY.fullmatch(boundary):
            raise Refusal(400, "the upload names no boundary")
        self._body = body
        self._delimiter = b"\r\n--" + boundary.encode()
        # The first delimiter has no line before it; this makes it like the others.
        self._buffer = b"\r\n"
        self.filename = self._find_file()

    def content(self) -> Iterator[bytes]:
        """The file's bytes, to its end; then the rest of the request is read too."""
        yield from self._until_delimiter()
        while self._body.read(_PIECE):
            pass

    def _find_file(self) -> str:
        for _ in self._until_delimiter():
            pass
        while self._starts_part():
            head = _parameters(self._disposition())
            if head.get("name") == "file" and "filename" in head:
                return head["filename"]
            for _ in self._until_delimiter():
                pass
        raise Refusal(400, "the upload has no part called `file` with a file name")

    def _until_delimiter(self) -> Iterator[bytes]:
        keep = len(self._delimiter) - 1
        while True:
            at = self._buffer.find(self._delimiter)
            if at >= 0:
                found, self._buffer = self._buffer[:at], self._buffer[at + len(self._delimiter) :]
                if found:
                    yield found
                return
            if len(self._buffer) > keep:
                yield self._buffer[:-keep]
                self._buffer = self._buffer[-keep:]
            self._more()

    def _starts_part(self) -> bool:
        while len(self._buffer) < 2:  # noqa: PLR2004 (what follows a delimiter: two dashes, or a line's end)
            self._more()
        if self._buffer.startswith(b"--"):
            return False
        if not self._buffer.startswith(b"\r\n"):
            raise Refusal(400, "the upload's parts are not separated as announced")
        return True

    def _disposition(self) -> str:
        while (end := self._buffer.find(b"\r\n\r\n")) < 0:
            if len(self._buffer) > _LONGEST_HEAD:
                raise Refusal(400, "a part of the upload has too long a head")
            self._more()
        head, self._buffer = self._buffer[2:end], self._buffer[end + 4 :]
        for line in head.decode("utf-8", "surrogateescape").split("\r\n"):
            name, _, value = line.partition(":")
            if name.strip().lower() == "content-disposition":
                return value
        return ""

    def _more(self) -> None:
        data = self._body.read(_PIECE)
        if not data:
            raise Refusal(400, "the upload ended before its last boundary")
        self._buffer += data


def _parameters(value: str) -> dict[str, str]:
    """What follows the first word of a header: `; name="value"`, any number of times."""
    return {name.lower(): _unquoted(quoted or bare) for name, quoted, bare in _PARAMETER.findall(value)}


def _unquoted(text: str) -> str:
    """As HTML forms quote: a quote and line ends are percent-encoded, a backslash may be doubled."""
    text = text.replace("\\\\", "\\")
    for code, letter in (("%22", '"'), ("%0D", "\r"), ("%0A", "\n")):
        text = text.replace(code, letter)
    return text
