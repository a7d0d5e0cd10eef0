"""Reads the head of an ordinary answer without the mail parser that http.client keeps for all of them.

Ordinary is what a Kubernetes server nearly always says: yes, in HTTP/1.1, plain header lines, a length, and
the connection stays. The head is looked at before anything is taken from the stream, so that whatever is
unusual about it is left, untouched, to http.client. Not here: bodies.
"""

from __future__ import annotations

import re
from http.client import HTTPMessage, HTTPResponse
from typing import cast

_NAME = rb"[A-Za-z0-9-]+"
_HEAD = re.compile(rb"HTTP/1\.1 (20[01]) ([ -~]*)\r\n((?:" + _NAME + rb": [!-~](?:[ -~]*[!-~])?\r\n)+)\r\n")
_LINE = re.compile(rf"({_NAME.decode()}): ([^\r]*)\r\n")
_MOST_DIGITS = 18
# Each of them says something about the body or the connection that is for http.client to judge.
_UNUSUAL = frozenset({"connection", "transfer-encoding", "keep-alive", "proxy-connection"})


class PlainAnswer(HTTPResponse):
    """An answer whose head is read in one look where that is possible; the same in every other way."""

    def begin(self) -> None:
        if not self._is_begun() and self._method != "HEAD":  # type: ignore[attr-defined]
            head = _HEAD.match(self.fp.peek())
            if head is not None and self._take(head):
                return
        super().begin()

    def _is_begun(self) -> bool:
        return cast("HTTPMessage | None", self.headers) is not None

    def _take(self, head: re.Match[bytes]) -> bool:
        message, length = HTTPMessage(), None
        for name, value in _LINE.findall(head[3].decode("ascii")):
            folded = name.lower()
            if folded in _UNUSUAL:
                return False
            if folded == "content-length":
                if length is not None or not value.isdecimal() or len(value) > _MOST_DIGITS:
                    return False
                length = int(value)
            message.set_raw(name, value)
        if length is None:
            return False
        self.fp.read(head.end())
        self.version, self.chunked, self.will_close = 11, False, False
        self.code = self.status = int(head[1])
        self.reason = head[2].decode("ascii").strip()
        self.headers = self.msg = message
        self.length = length
        return True
