"""A local port that leads into a sandbox: loopback only, many connections at once, each on its own."""

import socket
import threading

import pytest
from aiohttp import WSMsgType, web

from holdfast.errors import PortTakenError
from holdfast.sandbox.sdk.sync import Sandbox

FORWARD = "/v1/sandboxes/a/forward"


async def echo(request):
    opened = web.WebSocketResponse()
    await opened.prepare(request)
    async for message in opened:
        if message.type is WSMsgType.BINARY:
            await opened.send_bytes(message.data.upper())
    return opened


async def greet(request):
    opened = web.WebSocketResponse()
    await opened.prepare(request)
    await opened.send_bytes(b"bye")
    return opened


async def refuse(_request):
    return web.json_response({"code": "no-port", "message": "nobody listens there", "hint": ""}, status=409)


@pytest.fixture
def box(peer):
    with Sandbox("a", peer.access) as made:
        yield made


@pytest.fixture(autouse=True)
def nothing_goes_wrong_unseen(caplog):
    """The event loop tells of errors in nobody's call by its log alone."""
    yield
    assert [each.getMessage() for each in caplog.get_records("call") if each.name == "asyncio"] == []


def ask(port, data):
    with socket.create_connection(("127.0.0.1", port), timeout=10) as opened:
        opened.sendall(data)
        found = b""
        while len(found) < len(data):
            piece = opened.recv(65536)
            if not piece:
                break
            found += piece
        return found


def test_many_connections_at_once(peer, box):
    peer.answers[FORWARD] = echo
    found = {}
    with box.forward(8080) as opened:
        assert opened.address[0] == "127.0.0.1"
        ports = [
            threading.Thread(
                target=lambda n=n: found.update({n: ask(opened.local_port, b"hello%d" % n * 5000)})
            )
            for n in range(8)
        ]
        for each in ports:
            each.start()
        for each in ports:
            each.join(20)
    assert found == {n: b"HELLO%d" % n * 5000 for n in range(8)}
    assert peer.seen == [f"GET {FORWARD}?port=8080"] * 8


def test_the_other_sides_end_is_the_connections_end(peer, box):
    peer.answers[FORWARD] = greet
    with box.forward(80) as opened, socket.create_connection(("127.0.0.1", opened.local_port), 10) as one:
        one.settimeout(10)
        assert one.recv(10) == b"bye"
        assert one.recv(10) == b""


@pytest.mark.parametrize("code", [None, 1001, 1011])
def test_an_answer_that_is_cut_does_not_look_whole(peer, box, code):
    async def cut(request):
        opened = web.WebSocketResponse()
        await opened.prepare(request)
        await opened.send_bytes(b"half")
        await opened.receive()
        if code is None:
            request.transport.abort()
        else:
            await opened.close(code=code)
        return opened

    peer.answers[FORWARD] = cut
    with box.forward(80) as opened, socket.create_connection(("127.0.0.1", opened.local_port), 10) as one:
        assert one.recv(10) == b"half"
        one.sendall(b"go on")
        with pytest.raises(ConnectionResetError):
            one.recv(10)


def test_an_answer_that_is_not_waited_for_any_longer_does_not_look_whole(peer, box):
    peer.answers[FORWARD] = echo
    with box.forward(80) as opened, socket.create_connection(("127.0.0.1", opened.local_port), 10) as one:
        one.sendall(b"x")
        one.shutdown(socket.SHUT_WR)
        assert one.recv(10) == b"X"
        with pytest.raises(ConnectionResetError):
            one.recv(10)


def test_one_that_is_refused_is_closed_and_takes_no_other_along(peer, box):
    peer.answers[FORWARD] = refuse
    with box.forward(80) as opened:
        with pytest.raises(ConnectionResetError):
            ask(opened.local_port, b"x")
        peer.answers[FORWARD] = echo
        assert ask(opened.local_port, b"x") == b"X"


def test_nothing_listens_when_the_block_is_over(peer, box):
    peer.answers[FORWARD] = echo
    with box.forward(80) as opened:
        port = opened.local_port
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port), 5)


def test_a_port_that_is_taken_is_named(box):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(PortTakenError, match=str(port)), box.forward(80, port):
            pass
