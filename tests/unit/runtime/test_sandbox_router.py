"""The router: which sandbox a request goes to, and that bodies are forwarded unchanged."""

import os
import socket
from types import SimpleNamespace

import pytest
import requests
from tests.support.eventually import eventually
from tests.unit.runtime.conftest import is_running, script_request, serving

from holdfast.runtime.http_request import HTTPError
from holdfast.runtime.http_server import RuntimeServer, RuntimeSettings
from holdfast.runtime.sandbox_router import MessageHead, ResponseRewriter, Router, sandbox_address


def head(**headers):
    lines = [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    return MessageHead("\r\n".join(["GET / HTTP/1.1", *lines]).encode())


def test_sandbox_is_reached_by_service_or_pod_address():
    assert sandbox_address(head(X_Sandbox_ID="a")) == ("a.default.svc.cluster.local", 8888)
    named = head(X_Sandbox_ID="a.b", X_Sandbox_Namespace="ns", X_Sandbox_Port="3000")
    assert sandbox_address(named) == ("a.b.ns.svc.cluster.local", 3000)
    assert sandbox_address(head(X_Sandbox_ID="a", X_Sandbox_Pod_IP="10.42.0.9")) == ("10.42.0.9", 8888)
    assert sandbox_address(head(x_sandbox_id="a", x_sandbox_pod_ip="fd00::9")) == ("fd00::9", 8888)


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"X_Sandbox_ID": ""},
        {"X_Sandbox_ID": "a/b"},
        {"X_Sandbox_ID": "UPPER"},
        {"X_Sandbox_ID": "a", "X_Sandbox_Namespace": "x.y"},
        {"X_Sandbox_ID": "a", "X_Sandbox_Namespace": "kube-system.svc.example"},
        {"X_Sandbox_ID": "a", "X_Sandbox_Port": "0"},
        {"X_Sandbox_ID": "a", "X_Sandbox_Port": "65536"},
        {"X_Sandbox_ID": "a", "X_Sandbox_Port": "-1"},
        {"X_Sandbox_ID": "a", "X_Sandbox_Port": "8888x"},
        {"X_Sandbox_ID": "a", "X_Sandbox_Pod_IP": "localhost"},
        {"X_Sandbox_ID": "a", "X_Sandbox_Pod_IP": "127.0.0.1"},
        {"X_Sandbox_ID": "a", "X_Sandbox_Pod_IP": "0.0.0.0"},
        {"X_Sandbox_ID": "a", "X_Sandbox_Pod_IP": "169.254.169.254"},
        {"X_Sandbox_ID": "a", "X_Sandbox_Pod_IP": "::1"},
        {"X_Sandbox_ID": "a", "X_Sandbox_Pod_IP": "::ffff:127.0.0.1"},
        {"X_Sandbox_ID": "a", "x_sandbox_id": "b"},
    ],
)
def test_other_destinations_are_rejected(headers):
    with pytest.raises(HTTPError) as refused:
        sandbox_address(head(**headers))
    assert refused.value.status in (400, 403)


def own_address():
    """An address of this machine that is not loopback; nothing is sent to find it."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect(("192.0.2.1", 9))
        return probe.getsockname()[0]


@pytest.fixture
def running_router(tmp_path):
    try:
        address = own_address()
    except OSError:
        pytest.skip("this machine has no network")
    with (
        serving(RuntimeServer(address, 0, RuntimeSettings(tmp_path))) as port,
        serving(Router("127.0.0.1", 0)) as entry,
        requests.Session() as session,
    ):
        session.headers.update(
            {"X-Sandbox-ID": "a", "X-Sandbox-Port": str(port), "X-Sandbox-Pod-IP": address}
        )
        yield SimpleNamespace(root=tmp_path, url=f"http://127.0.0.1:{entry}", session=session, entry=entry)


def test_commands_and_files_are_forwarded(running_router):
    answer = running_router.session.post(
        f"{running_router.url}/execute", json={"command": "echo hello"}, timeout=30
    )
    assert answer.json()["stdout"] == "hello\n"
    content = os.urandom(5_000_000)
    running_router.session.post(
        f"{running_router.url}/upload", files={"file": ("x/y", content)}, timeout=30
    ).raise_for_status()
    assert (running_router.root / "x" / "y").read_bytes() == content
    assert running_router.session.get(f"{running_router.url}/download/x%2Fy", timeout=30).content == content


def test_repeated_commands_on_one_session(running_router):
    for number in range(5):
        answer = running_router.session.post(
            f"{running_router.url}/execute", json={"command": f"echo {number}"}, timeout=30
        )
        assert answer.json()["stdout"] == f"{number}\n"
        assert answer.headers["Connection"] == "close"


@pytest.mark.parametrize("cut", [1, 2, 7, 1000])
def test_response_has_connection_close(cut):
    body = b"a\r\n\r\nb"
    raw = b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nConnection: keep-alive\r\nX: y\r\n\r\n" + body
    answer = ResponseRewriter()
    out = b"".join(answer.rewrite(raw[at : at + cut]) for at in range(0, len(raw), cut))
    wanted = b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nX: y\r\nConnection: close\r\n\r\n"
    assert out == wanted + body


def test_sandbox_error_is_forwarded(running_router):
    answer = running_router.session.post(
        f"{running_router.url}/upload", files={"file": ("../x", b"y" * 3_000_000)}, timeout=30
    )
    assert answer.status_code == 403
    assert answer.json() == {"message": "Access denied"}


def test_client_disconnect_closes_sandbox_connection(running_router):
    body = script_request("echo $$ > own; exec sleep 600")
    lines = [
        f"{name}: {value}" for name, value in running_router.session.headers.items() if name.startswith("X-")
    ]
    lines += ["Content-Type: application/json", f"Content-Length: {len(body)}"]
    head = "\r\n".join(["POST /execute HTTP/1.1", *lines, "", ""])
    with socket.create_connection(("127.0.0.1", running_router.entry)) as client:
        client.sendall(head.encode() + body)
        eventually(
            lambda: (running_router.root / "own").exists() and (running_router.root / "own").read_text()
        )
    own = int((running_router.root / "own").read_text())
    eventually(lambda: not is_running(own))


def test_unreachable_sandbox_is_reported(running_router):
    running_router.session.headers["X-Sandbox-Port"] = "1"
    answer = running_router.session.get(f"{running_router.url}/list/", timeout=30)
    assert answer.status_code == 502
    assert "cannot be reached" in answer.json()["message"]


def test_health_endpoint(running_router):
    assert requests.get(f"{running_router.url}/healthz", timeout=30).status_code == 200


def test_malformed_response_is_an_error_of_the_sandbox():
    with pytest.raises(HTTPError, match="response of the sandbox is not HTTP") as refused:
        ResponseRewriter().rewrite(b"HTTP/1.1 200 OK\r\nno colon\r\n\r\n")
    assert refused.value.status == 502


def test_client_that_does_not_finish_its_request_is_disconnected():
    with (
        serving(Router("127.0.0.1", 0, head_seconds=0.05)) as entry,
        socket.create_connection(("127.0.0.1", entry), timeout=20) as client,
    ):
        client.sendall(b"GET / HTTP/1.1\r\n")
        assert client.recv(100) == b""


@pytest.mark.parametrize("raw", [b"GET / HTTP/1.1\r\nno colon\r\n\r\n", b"x" * 100_000 + b"\r\n\r\n"])
def test_malformed_request_is_rejected(running_router, raw):
    with socket.create_connection(("127.0.0.1", running_router.entry), timeout=20) as client:
        client.sendall(raw)
        assert client.recv(100).startswith(b"HTTP/1.1 4")
