"""The short reading of an answer's head: never another result than http.client's own."""

from __future__ import annotations

import io
from http.client import HTTPException, HTTPResponse

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from holdfast.kube.plain_answers import PlainAnswer

ORDINARY = (
    b"HTTP/1.1 200 OK\r\nAudit-Id: 7c\r\nContent-Type: application/json\r\nContent-Length: 4\r\n\r\nbodyREST"
)


class Wire:
    """A socket from which these bytes come, so many at a time."""

    def __init__(self, data, at_once=8192):
        self._data, self._at_once = data, at_once

    def makefile(self, _mode):
        chunks = io.BytesIO(self._data)
        at_once = self._at_once

        class Raw(io.RawIOBase):
            def readable(self):
                return True

            def readinto(self, into):
                piece = chunks.read(min(len(into), at_once))
                into[: len(piece)] = piece
                return len(piece)

        return io.BufferedReader(Raw())


def seen(kind, data, method="GET", at_once=8192):
    """All that a reader of the answer can tell, or the error it gets."""
    answer = kind(Wire(data, at_once), method=method)
    try:
        answer.begin()
        told = [answer.status, answer.reason, answer.version, answer.headers.items(), answer.length]
        told += [answer.chunked, answer.will_close, list(map(type, answer.headers.defects)), answer.read()]
    except (HTTPException, ValueError) as error:
        return [type(error), str(error)]
    return told


names = st.sampled_from(
    [
        "Content-Length",
        "content-length",
        "Connection",
        "Transfer-Encoding",
        "Keep-Alive",
        "Audit-Id",
        "X_y",
        "A b",
    ]
)
values = st.sampled_from(
    ["4", "0", "-1", "4, 4", "close", "keep-alive", "chunked", " lead", "trail ", "", "é", "a: b", "\t", "१"]
)
statuses = st.sampled_from(
    ["200 OK", "201 Created", "204 No Content", "100 Continue", "404 Not Found", "200"]
)


@st.composite
def answers(draw):
    head = f"{draw(st.sampled_from(['HTTP/1.1', 'HTTP/1.0', 'HTTP/2', 'ICY']))} {draw(statuses)}\r\n"
    ending = draw(st.sampled_from(["\r\n", "\n", "\r\n folded\r\n"]))
    for name, value in draw(st.lists(st.tuples(names, values), max_size=5)):
        head += f"{name}:{draw(st.sampled_from([' ', '', '  ']))}{value}{ending}"
    return head.encode("utf-8") + b"\r\nbodyREST"


@given(answers(), st.sampled_from(["GET", "POST", "HEAD"]), st.sampled_from([8192, 7]))
@example(ORDINARY, "GET", 8192)
@example(ORDINARY.replace(b"Length: 4", b"Length: " + b"4" * 5000), "GET", 8192)
@example(ORDINARY.replace(b"200 OK", b"204 No Content"), "GET", 8192)
@example(ORDINARY.replace(b"Audit-Id: 7c", b"Content-Length: 5"), "GET", 8192)
def test_reads_what_http_client_reads(data, method, at_once):
    assert seen(PlainAnswer, data, method, at_once) == seen(HTTPResponse, data, method, at_once)


@given(st.binary(max_size=200))
def test_of_any_bytes_the_same_comes_out(data):
    assert seen(PlainAnswer, data) == seen(HTTPResponse, data)


@given(st.integers(0, len(ORDINARY) - 1), st.integers(0, 255))
def test_a_damaged_byte_changes_both_alike(place, byte):
    data = ORDINARY[:place] + bytes([byte]) + ORDINARY[place + 1 :]
    assert seen(PlainAnswer, data) == seen(HTTPResponse, data)


def test_an_ordinary_answer_does_go_the_short_way(monkeypatch):
    monkeypatch.setattr(HTTPResponse, "begin", lambda _self: pytest.fail("went the long way"))
    assert seen(PlainAnswer, ORDINARY)[-1] == b"body"
