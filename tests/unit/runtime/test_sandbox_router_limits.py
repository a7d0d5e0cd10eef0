"""Requests that wait in the router: whose clients disconnect, and how many may wait."""

import socket
import struct
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress

import pytest
import requests
from tests.support.eventually import eventually
from tests.unit.runtime.router_backends import (
    ask,
    backend,
    connected,
    read_all,
    read_head,
    request_head,
    routing,
)

INTERIM = b"HTTP/1.1 100 Continue\r\n\r\n"
UPGRADE = ("Connection: Upgrade", "Upgrade: raw")
SWITCH = b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: raw\r\n\r\n"
COMMAND = ("Content-Type: application/json", "Content-Length: 2")


class BusySandbox:
    """Reads requests, and responds after `may_respond` is set; counts the connections."""

    def __init__(self):
        self.connections, self.bodies = 0, []
        self.is_asked, self.may_respond = threading.Semaphore(0), threading.Event()

    def __call__(self, connection):
        self.connections += 1
        head = read_head(connection)
        if b"Upgrade: raw" in head:
            connection.sendall(SWITCH)
            read_all(connection)
            return
        length = int(head.partition(b"Content-Length: ")[2].partition(b"\r\n")[0] or 0)
        body = b""
        while len(body) < length and (data := connection.recv(65536)):
            body += data
        self.bodies.append(body)
        self.is_asked.release()
        assert self.may_respond.wait(20)
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")


@pytest.fixture
def sandbox():
    """A sandbox that responds at the end, if the test did not let it respond before."""
    busy = BusySandbox()
    yield busy
    busy.may_respond.set()


def is_healthy(router):
    try:
        return requests.get(f"http://127.0.0.1:{router}/healthz", timeout=20).status_code == 200
    except requests.ConnectionError:
        return False


def reset(client):
    """Close with a reset, as the kernel does for a process that did not read everything."""
    client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    client.close()


def start_command(client, port):
    client.sendall(request_head(port, *COMMAND, start="POST /execute HTTP/1.1") + b"{}")


@pytest.mark.parametrize("leave", [socket.socket.close, reset])
def test_waiting_client_that_leaves_frees_its_connection(sandbox, leave):
    with (
        backend(sandbox) as port,
        routing(max_requests=1, max_waiting=3, max_connections=4) as router,
        ThreadPoolExecutor(1) as pool,
        ExitStack() as open_ones,
    ):
        open_ones.callback(sandbox.may_respond.set)
        first = pool.submit(ask, router, port)
        assert sandbox.is_asked.acquire(timeout=20)
        waiting = [open_ones.enter_context(connected(router)) for _ in range(3)]
        for client in waiting:
            start_command(client, port)
        assert not is_healthy(router)
        for client in waiting:
            leave(client)
        eventually(lambda: is_healthy(router))
        sandbox.may_respond.set()
        assert first.result().text == "ok"
        assert ask(router, port).text == "ok"
    assert sandbox.connections == 2


def test_waiting_client_with_unread_data_frees_its_connection(sandbox):
    with (
        backend(sandbox) as port,
        routing(max_requests=1, max_connections=2) as router,
        connected(router) as first,
        ExitStack() as end,
    ):
        end.callback(sandbox.may_respond.set)
        first.sendall(request_head(port))
        assert sandbox.is_asked.acquire(timeout=20)
        with connected(router) as client:
            client.sendall(request_head(port, "Content-Length: 1000000000", start="POST / HTTP/1.1"))
            client.setblocking(False)
            with suppress(BlockingIOError):
                while True:
                    client.send(b"x" * 65536)
            assert not is_healthy(router)
            reset(client)
        eventually(lambda: is_healthy(router))


def test_waiting_request_is_not_sent_after_its_client_disconnected(sandbox):
    with (
        backend(sandbox) as port,
        routing(max_requests=1) as router,
        connected(router) as client,
        ThreadPoolExecutor(1) as pool,
        ExitStack() as end,
    ):
        end.callback(sandbox.may_respond.set)
        first = pool.submit(ask, router, port)
        assert sandbox.is_asked.acquire(timeout=20)
        start_command(client, port)
        assert is_healthy(router)  # the router has read what was sent before
        reset(client)
        sandbox.may_respond.set()
        assert first.result().text == "ok"
        assert ask(router, port).text == "ok"
    assert sandbox.connections == 2


@pytest.mark.parametrize(("version", "interim"), [("1.1", INTERIM), ("1.0", b"")])
def test_half_closed_client_that_waits_receives_response(sandbox, version, interim):
    with (
        backend(sandbox) as port,
        routing(max_requests=1) as router,
        connected(router) as client,
        ThreadPoolExecutor(1) as pool,
        ExitStack() as end,
    ):
        end.callback(sandbox.may_respond.set)
        first = pool.submit(ask, router, port)
        assert sandbox.is_asked.acquire(timeout=20)
        client.sendall(request_head(port, start=f"GET / HTTP/{version}"))
        client.shutdown(socket.SHUT_WR)
        assert client.recv(len(interim), socket.MSG_WAITALL) == interim
        assert is_healthy(router)
        sandbox.may_respond.set()
        assert read_all(client) == b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok"
        assert first.result().text == "ok"


def test_body_of_waiting_request_is_forwarded(sandbox):
    body = b"x" * 4_000_000
    with (
        backend(sandbox) as port,
        routing(max_requests=1) as router,
        ThreadPoolExecutor(2) as pool,
        ExitStack() as end,
    ):
        end.callback(sandbox.may_respond.set)
        first = pool.submit(ask, router, port)
        assert sandbox.is_asked.acquire(timeout=20)
        second = pool.submit(ask, router, port, method="POST", data=body)
        assert is_healthy(router)
        sandbox.may_respond.set()
        assert [first.result().text, second.result().text] == ["ok", "ok"]
    assert sandbox.bodies == [b"", body]


def test_health_check_has_a_connection_while_all_slots_are_taken(sandbox):
    limits = {"max_upgrades": 3, "max_requests": 3, "max_waiting": 3, "max_connections": 16}
    with backend(sandbox) as port, routing(**limits) as router, ExitStack() as open_ones:
        open_ones.callback(sandbox.may_respond.set)

        def opened(*lines):
            client = open_ones.enter_context(connected(router))
            client.sendall(request_head(port, *lines))
            return client

        for _ in range(3):
            assert read_head(opened(*UPGRADE)) == SWITCH
        for _ in range(3):
            opened()
            assert sandbox.is_asked.acquire(timeout=20)
        asked = []
        for _ in range(40):
            asked.append(opened())  # a rejected client does not close, either
            assert is_healthy(router)
        sandbox.may_respond.set()
        answers = [read_all(client) for client in asked]
    assert [answer.partition(b"\r\n")[0] for answer in answers] == (
        [b"HTTP/1.1 200 OK"] * 3 + [b"HTTP/1.1 503 Service Unavailable"] * 37
    )
    assert answers[-1].endswith(b'{"detail": "Too many requests."}')


def test_request_is_not_sent_if_its_client_disconnects_during_connection_attempts():
    is_listening, received = threading.Event(), b""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.settimeout(20)

        def delays():
            # The router asks for the first delay after a refused connection.
            reset(client)
            listener.listen()
            is_listening.set()
            yield 0

        with routing(dial_delays=delays()) as router, connected(router) as client:
            start_command(client, listener.getsockname()[1])
            assert is_listening.wait(20)
            connection, _ = listener.accept()
            with connection, suppress(ConnectionResetError):
                received = connection.recv(100)
    assert received == b""
