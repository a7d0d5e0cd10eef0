"""Port forwarding: loopback only, many independent connections at the same time."""

import asyncio
import socket
import threading

import msgspec
import pytest
from aiohttp import WSMsgType, web

from holdfast.api import Phase, SandboxView
from holdfast.client import Sandbox
from holdfast.errors import ObjectConflictError, PortInUseError

SANDBOX = "/v1/sandboxes/a"
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


def report_phase(phase):
    async def answer(_request):
        return web.json_response(body=msgspec.json.encode(SandboxView(name="a", id="1", phase=phase)))

    return answer


@pytest.fixture
def sandbox(fake_server):
    fake_server.answers[SANDBOX] = report_phase(Phase.READY)
    with Sandbox("a", fake_server.access) as made:
        yield made


@pytest.fixture(autouse=True)
def fail_on_logged_errors(caplog):
    """Fail if asyncio logged an error of a background task."""
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


def test_concurrent_connections(fake_server, sandbox):
    fake_server.answers[FORWARD] = echo
    found = {}
    with sandbox.forward(8080) as opened:
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
    assert fake_server.seen == [f"GET {SANDBOX}", *[f"GET {FORWARD}?port=8080"] * 8]


def test_remote_close_closes_connection(fake_server, sandbox):
    fake_server.answers[FORWARD] = greet
    with sandbox.forward(80) as opened, socket.create_connection(("127.0.0.1", opened.local_port), 10) as one:
        one.settimeout(10)
        assert one.recv(10) == b"bye"
        assert one.recv(10) == b""


@pytest.mark.parametrize("code", [None, 1001, 1011])
def test_cut_response_is_not_reported_as_eof(fake_server, sandbox, code):
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

    fake_server.answers[FORWARD] = cut
    with sandbox.forward(80) as opened, socket.create_connection(("127.0.0.1", opened.local_port), 10) as one:
        assert one.recv(10) == b"half"
        one.sendall(b"go on")
        with pytest.raises(ConnectionResetError):
            one.recv(10)


def test_abandoned_response_is_not_reported_as_eof(fake_server, sandbox):
    fake_server.answers[FORWARD] = echo
    with sandbox.forward(80) as opened, socket.create_connection(("127.0.0.1", opened.local_port), 10) as one:
        one.sendall(b"x")
        one.shutdown(socket.SHUT_WR)
        assert one.recv(10) == b"X"
        with pytest.raises(ConnectionResetError):
            one.recv(10)


def test_refused_connection_is_closed_and_others_continue(fake_server, sandbox):
    fake_server.answers[FORWARD] = refuse
    with sandbox.forward(80) as opened:
        with pytest.raises(ConnectionResetError):
            ask(opened.local_port, b"x")
        fake_server.answers[FORWARD] = echo
        assert ask(opened.local_port, b"x") == b"X"


def test_nothing_listens_after_block(fake_server, sandbox):
    fake_server.answers[FORWARD] = echo
    with sandbox.forward(80) as opened:
        port = opened.local_port
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port), 5)


def test_taken_port_is_named(sandbox):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(PortInUseError, match=str(port)), sandbox.forward(80, port):
            pass


def forward_from_thread(sandbox):
    with sandbox.forward(80):
        pass


def forward_from_coroutine(sandbox):
    async def forward():
        async with sandbox as client, client.forward(80):
            pass

    asyncio.run(forward())


@pytest.mark.parametrize("forward", [forward_from_thread, forward_from_coroutine])
@pytest.mark.parametrize("phase", [Phase.SUSPENDED, Phase.FINISHED, Phase.EXPIRED, Phase.DELETING])
def test_sandbox_without_a_pod_is_reported_with_its_phase(fake_server, sandbox, forward, phase):
    fake_server.answers[SANDBOX] = report_phase(phase)
    with pytest.raises(ObjectConflictError, match=f"^sandbox a: {phase}; it has no pod") as caught:
        forward(sandbox)
    action = "resume" if phase == Phase.SUSPENDED else "get"
    assert caught.value.hint == f"Run `holdfast sandbox {action} --gateway dev a`."


@pytest.mark.parametrize("forward", [forward_from_thread, forward_from_coroutine])
@pytest.mark.parametrize("phase", [Phase.PENDING, Phase.READY, Phase.FAILED])
def test_sandbox_that_runs_or_restarts_is_accepted(fake_server, sandbox, forward, phase):
    fake_server.answers[SANDBOX] = report_phase(phase)
    forward(sandbox)
