"""The router: which sandbox a request goes to, what it receives, and how errors are reported."""

import contextlib
import os
import socket
import threading

import pytest
import requests
from tests.support.eventually import eventually
from tests.unit.runtime.conftest import is_running, script_request
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

from holdfast.runtime.http_message import RequestHead
from holdfast.runtime.sandbox_router import RouterSettings, Target

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


@pytest.fixture(scope="module")
def router():
    with routing() as port:
        yield port


def unused_port():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return listener.getsockname()[1]


def forwarded(router, raw, response=OK, *, body_size=0):
    """Send raw bytes through the router; return what the sandbox and the client receive."""
    received = []

    def handle(connection):
        received.append(read_head(connection))
        received.append(connection.recv(body_size, socket.MSG_WAITALL))
        with contextlib.suppress(ConnectionError):  # the router does not read an invalid response to its end
            connection.sendall(response)
            connection.shutdown(socket.SHUT_WR)
            received.append(read_all(connection))

    with backend(handle) as port, connected(router) as client:
        client.sendall(raw.replace(b"PORT", str(port).encode()))
        answer = read_all(client)
    return b"".join(received).replace(str(port).encode(), b"PORT"), answer


ADDRESS = b"X-Sandbox-ID: box\r\nX-Sandbox-Port: PORT\r\nX-Sandbox-Pod-IP: 127.0.0.1\r\n"


def test_health_endpoint_needs_no_headers(router):
    answer = requests.get(f"http://127.0.0.1:{router}/healthz", timeout=20)
    assert (answer.status_code, answer.json()) == (200, {"status": "ok"})


def target(settings=None, **headers):
    lines = [f"X-Sandbox-{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    head = RequestHead("\r\n".join(["GET / HTTP/1.1", *lines]).encode())
    found = Target.from_headers(head, settings or RouterSettings())
    return found.host, found.port, found.timeout


def test_sandbox_is_reached_by_service_or_pod_address():
    assert target(ID="a") == ("a.default.svc.cluster.local", 8888, 180)
    assert target(ID="a-1", Namespace="ns", Port="3000") == ("a-1.ns.svc.cluster.local", 3000, 180)
    assert target(ID="a" * 63)[0] == "a" * 63 + ".default.svc.cluster.local"
    assert target(ID="a", Pod_IP="10.42.0.9") == ("10.42.0.9", 8888, 180)
    assert target(id="a", pod_ip="fd00:0::9") == ("fd00::9", 8888, 180)
    assert target(ID="a", Pod_IP="::ffff:10.42.0.9") == ("10.42.0.9", 8888, 180)


@pytest.mark.parametrize(
    ("asked", "limit"),
    [("60", 60), ("0.5", 0.5), ("600", 180), ("0", 180), ("-1", 180), ("inf", 180), ("nan", 180), ("x", 180)],
)
def test_timeout_header_is_capped(asked, limit):
    assert target(ID="a", Timeout=asked)[2] == limit


def test_service_is_resolved_in_cluster_domain(monkeypatch):
    """This machine has no cluster DNS; the sockets are real."""
    asked, resolve = [], socket.getaddrinfo

    def lookup(host, *args, **options):
        asked.append(host)
        return resolve("127.0.0.1" if host.endswith(".example") else host, *args, **options)

    monkeypatch.setattr(socket, "getaddrinfo", lookup)
    seen = []

    def handle(connection):
        seen.append(read_head(connection))
        connection.sendall(OK)

    with backend(handle) as port, routing(cluster_domain="domain.example") as router:
        answer = requests.get(
            f"http://127.0.0.1:{router}/", timeout=20,
            headers={"X-Sandbox-ID": "box", "X-Sandbox-Namespace": "team", "X-Sandbox-Port": str(port)},
        )  # fmt: skip
        assert answer.text == "ok"
        assert f"Host: box.team.svc.domain.example:{port}\r\n".encode() in seen[0]
    assert "box.team.svc.domain.example" in asked


ID, NAMESPACE, PORT, IP = (
    f"Invalid {word}."
    for word in ("sandbox ID format", "namespace format", "port format", "target IP address")
)


@pytest.mark.parametrize(
    ("headers", "detail"),
    [
        ({}, "X-Sandbox-ID header is required."),
        ({"ID": ""}, "X-Sandbox-ID header is required."),
        *(({"ID": name}, ID) for name in ("a/b", "a.b", "UPPER", "-a", "a-", "a_b", "a" * 64)),
        *(({"ID": "a", "Namespace": name}, NAMESPACE) for name in ("x.y", "x.svc.example", "X", "y" * 64)),
        *(({"ID": "a", "Port": port}, PORT) for port in ("0", "65536", "-1", "8888x", "x", "9" * 20)),
        *(
            ({"ID": "a", "Pod-IP": address}, IP)
            for address in (
                "127.0.0.1", "0.0.0.0", "169.254.169.254", "224.0.0.1", "::1", "::", "fe80::1", "ff02::1",
                "::ffff:127.0.0.1", "::ffff:169.254.169.254",
            )
        ),
        *(
            ({"ID": "a", "Pod-IP": address}, "Invalid target IP address format.")
            for address in ("localhost", "999.1.1.1", "10.20.30", "10.0.0.1:80")
        ),
    ],
)  # fmt: skip
def test_other_destinations_are_rejected(headers, detail):
    with routing(allows_loopback=False) as router:
        sent = {f"X-Sandbox-{name}": value for name, value in headers.items()}
        answer = requests.post(f"http://127.0.0.1:{router}/execute", headers=sent, timeout=20)
    assert (answer.status_code, answer.json()) == (400, {"detail": detail})
    assert answer.headers["Content-Type"] == "application/json"


def test_second_value_of_a_header_is_not_overlooked(router):
    with connected(router) as client:
        client.sendall(request_head(1, "x-sandbox-id: other"))
        assert b'{"detail": "Invalid sandbox ID format."}' in read_all(client)


@pytest.mark.parametrize(
    ("value", "detail"),
    [
        (None, "Missing or invalid Authorization header."),
        ("secret", "Missing or invalid Authorization header."),
        ("Basic secret", "Missing or invalid Authorization header."),
        ("Bearer", "Missing or invalid Authorization header."),
        ("Bearer a b", "Missing or invalid Authorization header."),
        ("Bearer other", "Invalid token."),
        ("Bearer \xe9", "Invalid token."),
        ("Bearer secret", None),
        ("bearer secret", None),
    ],
)
def test_token_is_required(value, detail):
    headers = {} if value is None else {"Authorization": value.encode("latin-1")}
    with (
        backend(lambda connection: (read_head(connection), connection.sendall(OK))) as port,
        routing(token="secret") as router,
    ):
        assert requests.get(f"http://127.0.0.1:{router}/healthz", timeout=20).status_code == 200
        answer = ask(router, port, headers=headers)
    if detail is None:
        assert answer.text == "ok"
    else:
        assert (answer.status_code, answer.json()) == (401, {"detail": detail})


def test_token_or_its_absence_must_be_set():
    with pytest.raises(
        SystemExit, match=r"ROUTER_AUTH_TOKEN must be set; .* ALLOW_UNAUTHENTICATED_ROUTER=true"
    ):
        RouterSettings.from_environment({"ROUTER_AUTH_TOKEN": " ", "ALLOW_UNAUTHENTICATED_ROUTER": "false"})
    assert RouterSettings.from_environment({"ALLOW_UNAUTHENTICATED_ROUTER": "true"}) == RouterSettings()
    assert RouterSettings.from_environment({"ROUTER_AUTH_TOKEN": " s \n"}).token == "s"


def test_settings_of_published_router(capsys):
    environment = {"ALLOW_UNAUTHENTICATED_ROUTER": "1"}
    read = RouterSettings.from_environment(
        environment
        | {"PROXY_TIMEOUT_SECONDS": "600", "CLUSTER_DOMAIN": "my.domain", "ALLOW_LOOPBACK_POD_IP": "true"}
    )
    assert read == RouterSettings(timeout=600.0, cluster_domain="my.domain", allows_loopback=True)
    assert capsys.readouterr().err == ""
    for text in ("x", "0", "-1", "inf"):
        changed = environment | {"PROXY_TIMEOUT_SECONDS": text, "CLUSTER_DOMAIN": ""}
        assert RouterSettings.from_environment(changed) == RouterSettings()
        assert f"PROXY_TIMEOUT_SECONDS is not a number of seconds: '{text}'" in capsys.readouterr().err


def test_sandbox_receives_no_headers_of_the_router_or_the_connection(router):
    head, answer = forwarded(
        router,
        b"POST /a%2Fb/%2E?q=%2F HTTP/1.1\r\nHost: router\r\nAuthorization: Bearer secret\r\n" + ADDRESS
        + b"X-Sandbox-Namespace: ns\r\nX-Sandbox-UID: 1\r\nX-Sandbox-Timeout: 9\r\nX-Sandbox-Other: kept\r\n"
        b"Connection: close, X-Hop, Content-Length\r\nX-Hop: 1\r\nKeep-Alive: 5\r\nProxy-Authorization: x\r\n"
        b"Proxy-Authenticate: x\r\nProxy-Connection: x\r\nTE: trailers\r\nTrailer: x\r\nUpgrade: h2c\r\n"
        b"X-Forwarded-For: 192.0.2.1\r\nContent-Length: 0\r\n\r\n",
    )  # fmt: skip
    assert head == (
        b"POST /a%2Fb/%2E?q=%2F HTTP/1.1\r\nX-Sandbox-Other: kept\r\nX-Forwarded-For: 192.0.2.1\r\n"
        b"Content-Length: 0\r\nHost: 127.0.0.1:PORT\r\nConnection: close\r\n\r\n"
    )
    assert answer.endswith(b"\r\n\r\nok")


def test_client_receives_no_headers_of_the_sandbox_connection(router):
    response = (
        b"HTTP/1.1 201 Created\r\nConnection: keep-alive, X-Hop\r\nX-Hop: 1\r\nKeep-Alive: 5\r\nX: y\r\n"
        b"Content-Length: 2\r\n\r\nok"
    )
    _, answer = forwarded(router, b"GET / HTTP/1.1\r\n" + ADDRESS + b"\r\n", response)
    assert answer == b"HTTP/1.1 201 Created\r\nX: y\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok"


@pytest.mark.parametrize("start", ["GET http://gateway HTTP/1.1", "GET http://gateway:80?q HTTP/1.1"])
def test_whole_url_is_forwarded_as_path(router, start):
    head, _ = forwarded(router, start.encode() + b"\r\n" + ADDRESS + b"\r\n")
    assert head.startswith(b"GET /?q HTTP/1.1" if "?" in start else b"GET / HTTP/1.1")


@pytest.mark.parametrize(
    ("method", "response"),
    [
        ("GET", b"HTTP/1.1 200 OK\r\n\r\nuntil close"),
        ("GET", b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nchunk\r\n0\r\n\r\n"),
        ("HEAD", b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n"),
        ("GET", b"HTTP/1.1 204 No Content\r\n\r\n"),
        ("GET", b"HTTP/1.1 304 Not Modified\r\nContent-Length: 9\r\n\r\n"),
        ("GET", b"HTTP/1.1 404 \r\nContent-Length: 0\r\n\r\n"),
    ],
)
def test_response_is_forwarded_with_its_own_end(router, method, response):
    _, answer = forwarded(router, method.encode() + b" / HTTP/1.1\r\n" + ADDRESS + b"\r\n", response)
    assert answer == response.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n", 1)


def test_interim_response_is_forwarded(router):
    interim = b"HTTP/1.1 100 Continue\r\n\r\n"
    _, answer = forwarded(router, b"GET / HTTP/1.1\r\n" + ADDRESS + b"\r\n", interim + OK)
    assert answer == interim + OK.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n")


def test_chunks_are_forwarded_without_trailers(router):
    head = b"POST / HTTP/1.1\r\n" + ADDRESS + b"Transfer-Encoding: chunked\r\n\r\n"
    body, wanted = b"3;x=y\r\nabc\r\n0A\r\n0123456789\r\n0\r\n", b"3\r\nabc\r\na\r\n0123456789\r\n0\r\n\r\n"
    received, answer = forwarded(router, head + body + b"Authorization: x\r\n\r\n", body_size=len(wanted))
    assert received.partition(b"\r\n\r\n")[2] == wanted
    assert answer.endswith(b"ok")


def test_second_request_on_a_connection_is_not_forwarded(router):
    second = b"POST /second HTTP/1.1\r\nHost: router\r\nAuthorization: Bearer secret\r\n\r\n"
    received, answer = forwarded(
        router,
        b"POST / HTTP/1.1\r\n" + ADDRESS + b"Content-Length: 4\r\n\r\nbody" + second,
        body_size=4,
    )
    assert received.endswith(b"\r\n\r\nbody")
    assert answer.count(b"HTTP/1.1") == 1


@pytest.mark.parametrize(
    "lines",
    [
        [b"no colon"],
        [b": no name"],
        [b"X : y"],
        [b"X: y", b" folded: z"],
        [b"X: y\nAuthorization: x"],
        [b"X: \0"],
        [b"Content-Length: 1", b"Transfer-Encoding: chunked"],
        [b"Content-Length: 1", b"Content-Length: 2"],
        [b"Content-Length: +1"],
        [b"Transfer-Encoding: gzip, chunked"],
    ],
)
def test_ambiguous_request_is_rejected(router, lines):
    with connected(router) as client:
        client.sendall(b"\r\n".join([b"GET / HTTP/1.1", *lines, b"", b""]))
        answer = read_all(client)
    assert answer.startswith(b"HTTP/1.1 400 Bad Request\r\n")
    assert b'{"detail": "The request is not valid HTTP/1.1."}' in answer


@pytest.mark.parametrize(
    "start",
    [b"GET", b"GET / HTTP/2.0", b"GET x HTTP/1.1", b"CONNECT a:1 HTTP/1.1", b"\x16\x03", b"GET / HTTP/1.0"],
)
def test_malformed_request_line_is_rejected(router, start):
    with connected(router) as client:
        client.sendall(start + b"\r\nTransfer-Encoding: chunked\r\n\r\n")
        assert read_all(client).startswith(b"HTTP/1.1 400 ")


def test_headers_are_limited(router):
    with connected(router) as client:
        client.sendall(b"GET / HTTP/1.1\r\nX: " + b"x" * 100_000 + b"\r\n\r\n")
        answer = read_all(client)
    assert answer.startswith(b"HTTP/1.1 431 ")
    assert b'{"detail": "The headers are too long."}' in answer


@pytest.mark.parametrize(
    "body",
    [
        b"Content-Length: 9\r\n\r\nabc",
        b"Transfer-Encoding: chunked\r\n\r\n5\r\nabc",
        b"Transfer-Encoding: chunked\r\n\r\n5",
    ],
)
def test_incomplete_request_is_rejected(router, body):
    with backend(read_all) as port, connected(router) as client:
        client.sendall(b"POST / HTTP/1.1\r\n" + ADDRESS.replace(b"PORT", str(port).encode()) + body)
        client.shutdown(socket.SHUT_WR)
        answer = read_all(client)
    assert answer.startswith(b"HTTP/1.1 400 ")
    assert b"The body of the request is incomplete." in answer


@pytest.mark.parametrize("chunk", [b"0x3", b"+3", b"-3", b"0_3", b"g", b"", b"3\r\nabcdef"])
def test_malformed_chunks_are_rejected(router, chunk):
    with backend(read_all) as port, connected(router) as client:
        head = request_head(port, "Transfer-Encoding: chunked", start="POST / HTTP/1.1")
        client.sendall(head + chunk + b"\r\n\r\n")
        assert read_all(client).startswith(b"HTTP/1.1 400 ")


def test_unreachable_sandbox_is_reported(router):
    answer = ask(router, unused_port())
    assert (answer.status_code, answer.json()) == (
        502,
        {"detail": "Could not connect to the backend sandbox: box"},
    )


@pytest.mark.parametrize(
    "response",
    [b"", b"HTTP/1.1 200 OK\r\nX: incomplete", b"HTTP/1.1 200 OK\r\nno colon\r\n\r\n", b"x\r\n\r\n",
     b"HTTP/1.1 200 OK\r\nX: " + b"x" * 200_000],
)  # fmt: skip
def test_sandbox_without_valid_response_is_reported(router, response):
    _, answer = forwarded(router, b"GET / HTTP/1.1\r\n" + ADDRESS + b"\r\n", response)
    assert answer.startswith(b"HTTP/1.1 502 Bad Gateway\r\n")
    assert b'{"detail": "Could not connect to the backend sandbox: box"}' in answer


@pytest.mark.parametrize("failures", [1, 3])
def test_failed_connection_is_repeated(failures):
    is_listening = threading.Event()
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))

        def delays():
            for number in range(1, 4):
                # The router asks for the next delay after a refused connection.
                if number == failures:
                    listener.listen()
                    is_listening.set()
                yield 0

        with routing(dial_delays=delays()) as router, connected(router) as client:
            client.sendall(request_head(listener.getsockname()[1]))
            assert is_listening.wait(20)
            listener.settimeout(20)
            connection, _ = listener.accept()
            with connection:
                read_head(connection)
                connection.sendall(OK)
                connection.shutdown(socket.SHUT_WR)
                assert read_all(client).endswith(b"ok")


def test_connection_is_repeated_three_times():
    tried = []

    def delays():
        for delay in RouterSettings().dial_delays:
            tried.append(delay)
            yield 0

    with routing(dial_delays=delays()) as router:
        assert ask(router, unused_port()).status_code == 502
    assert tried == [0.2, 0.4, 0.8]


def test_internal_error_is_reported(capfd):
    with routing(cluster_domain="x" * 64) as router:  # no name has such a long part
        answer = requests.get(f"http://127.0.0.1:{router}/", headers={"X-Sandbox-ID": "a"}, timeout=20)
    assert (answer.status_code, answer.json()) == (
        500,
        {"detail": "An internal error occurred in the proxy."},
    )
    assert "UnicodeError" in capfd.readouterr().err


def test_commands_and_files_are_forwarded(router, sandbox):
    answer = ask(router, sandbox.port, "/execute", method="POST", json={"command": "echo hello"})
    assert answer.json()["stdout"] == "hello\n"
    content = os.urandom(5_000_000)
    ask(router, sandbox.port, "/upload", method="POST", files={"file": ("x/y", content)}).raise_for_status()
    assert (sandbox.root / "x" / "y").read_bytes() == content
    assert ask(router, sandbox.port, "/download/x%2Fy").content == content


def test_repeated_commands_on_one_session(router, sandbox):
    with requests.Session() as session:
        for number in range(5):
            answer = session.post(
                f"http://127.0.0.1:{router}/execute", headers=address_headers(sandbox.port), timeout=30,
                json={"command": f"echo {number}"},
            )  # fmt: skip
            assert answer.json()["stdout"] == f"{number}\n"
            assert answer.headers["Connection"] == "close"


def test_sandbox_error_is_forwarded(router, sandbox):
    answer = ask(router, sandbox.port, "/upload", method="POST", files={"file": ("../x", b"y" * 3_000_000)})
    assert (answer.status_code, answer.json()) == (403, {"message": "Access denied"})


def test_client_disconnect_terminates_command(router, sandbox):
    body = script_request("echo $$ > own; exec sleep 600")
    lines = ("Content-Type: application/json", f"Content-Length: {len(body)}")
    with connected(router) as client:
        client.sendall(request_head(sandbox.port, *lines, start="POST /execute HTTP/1.1") + body)
        eventually(lambda: (sandbox.root / "own").exists() and (sandbox.root / "own").read_text())
    own = int((sandbox.root / "own").read_text())
    eventually(lambda: not is_running(own))


def test_timed_out_command_is_terminated(router, sandbox):
    answer = ask(
        router, sandbox.port, "/execute", method="POST", timeout=2,
        headers={"Content-Type": "application/json"}, data=script_request("echo $$ > own; exec sleep 600"),
    )  # fmt: skip
    assert answer.status_code == 504
    own = int((sandbox.root / "own").read_text())
    eventually(lambda: not is_running(own))
