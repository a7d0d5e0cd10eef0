"""Connections with limits parse ordinary response heads themselves, with the results of http.client."""

from __future__ import annotations

import socket
from http.client import HTTPException, HTTPResponse

import pytest
from hypothesis import given, strategies as st
from kubernetes import client

from holdfast.kube import client_limits

BODY = b'{"kind": "ConfigMap"}'
LENGTH = b"Content-Length: %d" % len(BODY)
KUBERNETES_HEAD = [
    b"HTTP/1.1 200 OK",
    b"Audit-Id: 6c1e4c5e-96a8-4dfb-9f9b-0c3d2c8e6b11",
    b"Cache-Control: no-cache, private",
    b"Content-Type: application/json",
    b"Date: Wed, 18 Nov 2026 18:00:00 GMT",
    LENGTH,
]
HEADS = {
    "kubernetes": KUBERNETES_HEAD,
    "created": [b"HTTP/1.1 201 Created", LENGTH],
    "another-reason": [b"HTTP/1.1 200 All good ", LENGTH],
    "no-reason": [b"HTTP/1.1 200 ", LENGTH],
    "repeated-field": [b"HTTP/1.1 200 OK", b"Warning: 299 - a", b"Warning: 299 - b", LENGTH],
    "spaces": [b"HTTP/1.1 200 OK", b"X:  two ", b"Y:none", LENGTH],
    "colons": [b"HTTP/1.1 200 OK", b"X: a: b: c", LENGTH],
    "lower-case": [b"HTTP/1.1 200 OK", LENGTH.lower()],
    "not-found": [b"HTTP/1.1 404 Not Found", LENGTH],
    "no-content": [b"HTTP/1.1 204 No Content"],
    "not-modified": [b"HTTP/1.1 304 Not Modified", LENGTH],
    "continue": [b"HTTP/1.1 100 Continue", b"", *KUBERNETES_HEAD],
    "old-version": [b"HTTP/1.0 200 OK", LENGTH],
    "chunked": [b"HTTP/1.1 200 OK", b"Transfer-Encoding: chunked"],
    "chunked-and-length": [b"HTTP/1.1 200 OK", b"transfer-encoding: chunked", LENGTH],
    "close": [b"HTTP/1.1 200 OK", b"Connection: close", LENGTH],
    "keep-alive": [b"HTTP/1.1 200 OK", b"Connection: keep-alive", b"Keep-Alive: timeout=5", LENGTH],
    "no-length": [b"HTTP/1.1 200 OK", b"Content-Type: text/plain"],
    "two-lengths": [b"HTTP/1.1 200 OK", b"Content-Length: 3", LENGTH],
    "length-zero": [b"HTTP/1.1 200 OK", b"Content-Length: 0"],
    "length-negative": [b"HTTP/1.1 200 OK", b"Content-Length: -1"],
    "length-text": [b"HTTP/1.1 200 OK", b"Content-Length: many"],
    "length-too-long": [b"HTTP/1.1 200 OK", b"Content-Length: 999"],
    "folded-line": [b"HTTP/1.1 200 OK", b"X: a", b" b", LENGTH],
    "bare-newline": [b"HTTP/1.1 200 OK", b"X: a\nContent-Length: 3", LENGTH],
    "bare-return": [b"HTTP/1.1 200 OK", b"X: a\rContent-Length: 3", LENGTH],
    "not-ascii": [b"HTTP/1.1 200 OK", b"X: caf\xe9", LENGTH],
    "empty-value": [b"HTTP/1.1 200 OK", b"X:", LENGTH],
    "no-colon": [b"HTTP/1.1 200 OK", b"nonsense", LENGTH],
    "long": [b"HTTP/1.1 200 OK", b"X: " + b"x" * 20_000, LENGTH],
    "not-http": [b"220 mail.example ESMTP", LENGTH],
    "nothing": [],
}


def parse(response_class: type[HTTPResponse], data: bytes, method: str) -> tuple:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        theirs.sendall(data)
        theirs.shutdown(socket.SHUT_WR)
        response = response_class(ours, method=method)
        try:
            response.begin()
            head = (response.status, response.reason, response.version, response.headers.items())
            return (*head, response.length, response.chunked, response.will_close, response.read())
        except (HTTPException, OSError, ValueError) as error:
            return (type(error), str(error))


def assert_same(data: bytes, method: str = "GET") -> None:
    assert parse(client_limits._LimitedResponse, data, method) == parse(HTTPResponse, data, method)


@pytest.mark.parametrize("method", ["GET", "HEAD"])
@pytest.mark.parametrize("head", HEADS.values(), ids=HEADS)
def test_response_equals_that_of_http_client(head, method):
    assert_same(b"\r\n".join([*head, b"", BODY]), method)


LINE = st.sampled_from([line for head in HEADS.values() for line in head if len(line) < 100]) | st.binary(
    max_size=20
)


@given(
    lines=st.lists(LINE, max_size=6),
    end=st.sampled_from([b"\r\n", b"\n", b""]),
    method=st.sampled_from(["GET", "HEAD"]),
)
def test_arbitrary_responses_equal_those_of_http_client(lines, end, method):
    assert_same(b"\r\n".join([*lines, b"", BODY]) + end, method)


@given(cut=st.integers(0, 200))
def test_truncated_responses_equal_those_of_http_client(cut):
    assert_same(b"\r\n".join([*KUBERNETES_HEAD, b"", BODY])[:cut])


def test_kubernetes_response_needs_no_email_parser(monkeypatch):
    monkeypatch.setattr("http.client.parse_headers", None)
    response = parse(client_limits._LimitedResponse, b"\r\n".join([*KUBERNETES_HEAD, b"", BODY]), "GET")
    assert response[-1] == BODY


class RecordingSocket:
    """A connected socket that records each write."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock, self.writes = sock, []

    def sendall(self, data: bytes) -> None:
        self.writes.append(bytes(data))
        self._sock.sendall(data)

    def __getattr__(self, name: str):
        return getattr(self._sock, name)


@pytest.fixture
def connection():
    """A connection with limits to a server that only listens."""
    with socket.create_server(("127.0.0.1", 0)) as listener, client.ApiClient() as api_client:
        client_limits.apply_client_limits(api_client)
        pool = api_client.rest_client.pool_manager.connection_from_host(*listener.getsockname())
        connection = pool._new_conn()
        connection.connect()
        connection.sock = RecordingSocket(connection.sock)
        yield connection
        connection.close()


def test_head_and_body_are_one_write(connection):
    connection.request("POST", "/api", body='{"a": 1}', headers={"X": "y"})
    (write,) = connection.sock.writes
    assert write.startswith(b"POST /api HTTP/1.1\r\n")
    assert write.endswith(b'\r\n\r\n{"a": 1}')


@pytest.mark.parametrize("body", [None, "", b"", b"bytes", "x" * (2 << 20)], ids=repr)
def test_other_requests_are_sent_completely(connection, body, monkeypatch):
    # The listener accepts nothing, so a large body would block.
    monkeypatch.setattr(connection.sock, "sendall", connection.sock.writes.append)
    connection.request("POST", "/api", body=body)
    sent = b"".join(connection.sock.writes)
    head, _, rest = sent.partition(b"\r\n\r\n")
    assert head.startswith(b"POST /api HTTP/1.1\r\n")
    assert rest == (body.encode() if isinstance(body, str) else body or b"")


def test_rejected_request_leaves_nothing_for_the_next_one(connection, monkeypatch):
    def fail(*_args: object) -> None:
        raise BrokenPipeError

    with monkeypatch.context() as patch:
        patch.setattr(connection.sock, "sendall", fail)
        with pytest.raises(BrokenPipeError):
            connection.request("POST", "/first", body="1")
    connection.close()
    connection.connect()
    connection.sock = RecordingSocket(connection.sock)
    connection.request("GET", "/second")
    assert b"".join(connection.sock.writes).startswith(b"GET /second ")
