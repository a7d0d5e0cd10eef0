"""Data through the router: streams in both directions, upgrades, time limits and the limit of connections."""

import socket
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

import pytest
import requests
from tests.unit.runtime.router_backends import (
    address_headers,
    ask,
    backend,
    connected,
    read_all,
    read_head,
    request_head,
    routing,
)
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect
from websockets.sync.server import serve

CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
UPGRADE = ("Connection: keep-alive, Upgrade", "Upgrade: raw")
SWITCH = b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: raw\r\n\r\n"


@pytest.fixture(scope="module")
def router():
    with routing() as port:
        yield port


def echo_upgraded(connection):
    """Switch to a protocol that repeats each byte."""
    read_head(connection)
    connection.sendall(SWITCH)
    while data := connection.recv(65536):
        connection.sendall(data)


def silent(connection):
    """Read the request and never respond."""
    read_all(connection)


def test_response_arrives_while_the_sandbox_continues(router):
    has_first = threading.Event()

    def handle(connection):
        read_head(connection)
        connection.sendall(CHUNKED + b"5\r\nfirst\r\n")
        assert has_first.wait(20)
        connection.sendall(b"6\r\nsecond\r\n0\r\n\r\n")

    with backend(handle) as port, ask(router, port, stream=True) as answer:
        pieces = answer.iter_content(None)
        assert next(pieces) == b"first"
        has_first.set()
        assert next(pieces) == b"second"


def test_request_arrives_while_the_client_continues(router):
    has_first, received = threading.Event(), []

    def handle(connection):
        read_head(connection)
        received.append(connection.recv(100))
        has_first.set()
        while not received[-1].endswith(b"0\r\n\r\n"):
            received.append(connection.recv(100))
        connection.sendall(CHUNKED + b"2\r\nok\r\n0\r\n\r\n")

    def body():
        yield b"first"
        assert has_first.wait(20)
        yield b"second"

    with backend(handle) as port:
        assert ask(router, port, method="POST", data=body()).text == "ok"
    assert received[0] == b"5\r\nfirst\r\n"
    assert b"".join(received[1:]) == b"6\r\nsecond\r\n0\r\n\r\n"


def test_full_buffers_in_both_directions(router):
    """The sandbox reads no more until its own data is read."""
    size = 32 * 1024 * 1024

    def handle(connection):
        read_head(connection)
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % size)
        left = size
        while left:
            data = connection.recv(65536)
            connection.sendall(data)
            left -= len(data)

    with backend(handle) as port, connected(router) as client, ThreadPoolExecutor(1) as pool:
        client.sendall(request_head(port, f"Content-Length: {size}", start="POST / HTTP/1.1"))
        sent = pool.submit(client.sendall, b"x" * size)
        read_head(client)
        assert len(read_all(client)) == size
        sent.result()


def test_half_closed_client_receives_response(router, sandbox):
    (sandbox.root / "file").write_text("content")
    with connected(router) as client:
        client.sendall(request_head(sandbox.port, start="GET /download/file HTTP/1.1"))
        client.shutdown(socket.SHUT_WR)
        assert read_all(client).endswith(b"\r\n\r\ncontent")


def test_early_response_is_not_lost(router):
    def handle(connection):
        read_head(connection)
        connection.sendall(b"HTTP/1.1 413 Too Large\r\nContent-Length: 2\r\n\r\nno")
        connection.shutdown(socket.SHUT_WR)
        read_all(connection)

    with backend(handle) as port:
        answer = ask(router, port, method="POST", data=b"x" * 8_000_000)
    assert (answer.status_code, answer.text) == (413, "no")


@pytest.mark.parametrize(
    "begin", [b"Content-Length: 9\r\n\r\nabc", b"Transfer-Encoding: chunked\r\n\r\n5\r\nabc"]
)
def test_incomplete_response_is_reset(router, begin):
    def handle(connection):
        read_head(connection)
        connection.sendall(b"HTTP/1.1 200 OK\r\n" + begin)

    with backend(handle) as port, connected(router) as client:
        client.sendall(request_head(port))
        with pytest.raises(ConnectionResetError):
            read_all(client)


def test_websocket(router):
    def handle(websocket):
        assert websocket.request.path == "/channels?q=1"
        assert "Authorization" not in websocket.request.headers
        for message in websocket:
            websocket.send(message)

    with serve(handle, "127.0.0.1", 0) as server, ThreadPoolExecutor(1) as pool:
        pool.submit(server.serve_forever)
        headers = address_headers(server.socket.getsockname()[1]) | {"Authorization": "Bearer x"}
        try:
            with connect(f"ws://127.0.0.1:{router}/channels?q=1", additional_headers=headers) as client:
                for message in ("text", b"\r\n\r\nHTTP/1.1 200 OK\r\n\r\n", "x" * 1_000_000):
                    client.send(message)
                    assert client.recv(timeout=20) == message
        finally:
            server.shutdown()


def test_websocket_error_is_reported(router):
    with pytest.raises(InvalidStatus) as refused:
        connect(f"ws://127.0.0.1:{router}/", additional_headers={"X-Sandbox-ID": "a.b"})
    assert refused.value.response.status_code == 400
    assert refused.value.response.body == b'{"detail": "Invalid sandbox ID format."}'


def test_upgraded_connection_copies_bytes_until_both_sides_close(router):
    received = []

    def handle(connection):
        received.append(read_head(connection))
        connection.sendall(SWITCH + b"server first")
        received.append(read_all(connection))
        connection.sendall(b"server last")

    with backend(handle) as port, connected(router) as client:
        client.sendall(request_head(port, *UPGRADE) + b"client first")
        head = read_head(client)
        assert client.recv(100) == b"server first"
        client.sendall(b" client last")
        client.shutdown(socket.SHUT_WR)
        assert read_all(client) == b"server last"
    assert head == SWITCH
    assert received[0].endswith(b"Connection: Upgrade\r\nUpgrade: raw\r\n\r\n")
    assert received[1] == b"client first client last"


def test_refused_upgrade_is_a_normal_response(router):
    def handle(connection):
        read_head(connection)
        connection.sendall(b"HTTP/1.1 404 Not Found\r\nContent-Length: 2\r\n\r\nno")

    with backend(handle) as port, connected(router) as client:
        client.sendall(request_head(port, *UPGRADE))
        assert (
            read_all(client) == b"HTTP/1.1 404 Not Found\r\nContent-Length: 2\r\nConnection: close\r\n\r\nno"
        )


def test_switch_without_upgrade_is_rejected(router):
    with backend(echo_upgraded) as port:
        assert ask(router, port).status_code == 502


@pytest.mark.parametrize(("limit", "asked"), [(180, 0.1), (0.1, None), (0.1, 600), (0.1, "x")])
def test_silent_sandbox_times_out(limit, asked):
    with routing(timeout=limit) as router, backend(silent) as port:
        answer = ask(router, port, timeout=asked)
    assert (answer.status_code, answer.json()) == (
        504,
        {"detail": "Timed out waiting for the backend sandbox: box"},
    )


def test_started_response_is_reset_after_timeout():
    def handle(connection):
        read_head(connection)
        connection.sendall(b"HTTP/1.1 200 OK\r\n\r\nbegin")
        read_all(connection)

    with routing(timeout=0.5) as router, backend(handle) as port, connected(router) as client:
        client.sendall(request_head(port))
        with pytest.raises(ConnectionResetError):
            read_all(client)


def test_client_that_does_not_read_is_disconnected():
    ended = threading.Event()

    def handle(connection):
        read_head(connection)
        try:
            connection.sendall(b"HTTP/1.1 200 OK\r\n\r\n" + b"x" * 64 * 1024 * 1024)
        except ConnectionError:
            ended.set()

    with routing(timeout=0.2) as router, backend(handle) as port, connected(router) as client:
        client.sendall(request_head(port))
        assert ended.wait(20)


def test_client_that_does_not_finish_its_request_is_disconnected():
    with routing(head_seconds=0.05) as router, connected(router) as client:
        client.sendall(b"GET / HTTP/1.1\r\n")
        assert client.recv(100) == b""


def test_upgraded_connection_has_no_request_timeout():
    with (
        routing(timeout=0.5) as router,
        backend(echo_upgraded) as port,
        backend(silent) as other,
        connected(router) as client,
    ):
        client.sendall(request_head(port, *UPGRADE))
        assert read_head(client) == SWITCH
        assert ask(router, other).status_code == 504  # more than the timeout has passed
        client.sendall(b"still open")
        assert client.recv(100) == b"still open"


def test_idle_upgraded_connections_do_not_block_requests(sandbox):
    with (
        routing(max_upgrades=2, max_requests=2) as router,
        backend(echo_upgraded) as port,
        ExitStack() as open_ones,
    ):
        for _ in range(2):
            client = open_ones.enter_context(connected(router))
            client.sendall(request_head(port, *UPGRADE))
            assert read_head(client) == SWITCH
        assert requests.get(f"http://127.0.0.1:{router}/healthz", timeout=20).status_code == 200
        assert ask(router, sandbox.port).json()["status"] == "ok"
        with connected(router) as client:
            client.sendall(request_head(port, *UPGRADE))
            answer = read_all(client)
            assert answer.startswith(b"HTTP/1.1 503 ")
            assert b'{"detail": "Too many upgraded connections."}' in answer


def test_requests_above_the_limit_wait(sandbox):
    is_asked, may_respond = threading.Event(), threading.Event()

    def handle(connection):
        read_head(connection)
        is_asked.set()
        assert may_respond.wait(20)
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")

    with routing(max_requests=1) as router, backend(handle) as port, ThreadPoolExecutor(2) as pool:
        first = pool.submit(ask, router, port)
        assert is_asked.wait(20)
        assert requests.get(f"http://127.0.0.1:{router}/healthz", timeout=20).status_code == 200
        assert ask(router, sandbox.port, timeout=0.1).status_code == 504
        second = pool.submit(ask, router, sandbox.port)
        may_respond.set()
        assert first.result().text == "ok"
        assert second.result().json()["status"] == "ok"
