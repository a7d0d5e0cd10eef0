"""Connection faults: what the client sees, and what the server executed."""

from __future__ import annotations

import http.client
import socket
import ssl
import time

import pytest
from tests.support.eventually import eventually

from holdfast.retry import Policy, constant
from holdfast.testing.faults import rule

POST = {"method": "POST", "body": {"name": "a"}}


def test_without_rules_requests_pass_and_connection_is_kept(proxy, open_connection, upstream):
    with open_connection() as caller:
        first, _ = caller("POST", body={"name": "a"})
        second, body = caller()
    assert (first.status, second.status) == (201, 200)
    assert b'"name": "a"' in body
    assert [(r.method, r.status, r.committed, r.fault) for r in proxy.log] == [
        ("POST", 201, True, None),
        ("GET", 200, False, None),
    ]
    assert upstream.seen_headers["Host"] == upstream.url.removeprefix("http://")


def test_reset_before_never_reaches_server(proxy, call, upstream):
    with proxy.faults(rule("reset-before")) as log, pytest.raises(ConnectionResetError):
        call(**POST)
    assert upstream.objects == []
    (record,) = log
    assert (record.forwarded, record.committed) == (False, False)


def test_reset_after_has_committed(proxy, call, upstream):
    with proxy.faults(rule("reset-after")) as log, pytest.raises(ConnectionResetError):
        call(**POST)
    assert upstream.objects == [{"name": "a"}]
    (record,) = log
    assert (record.forwarded, record.upstream_status, record.committed, record.status) == (
        True,
        201,
        True,
        None,
    )


def test_reset_after_rejected_write_reports_no_commit(proxy, call):
    with proxy.faults(rule("reset-after")) as log, pytest.raises(ConnectionResetError):
        call("DELETE")
    assert [(r.upstream_status, r.committed) for r in log] == [(404, False)]


@pytest.mark.parametrize("cut", [None, 0, 10, 10_000])
def test_truncated_bodies_end_early(proxy, call, cut):
    with proxy.faults(rule("truncated", bytes=cut)), pytest.raises(http.client.IncompleteRead):
        call()


def test_truncated_chunks_end_early(proxy, call):
    with proxy.faults(rule("truncated")), pytest.raises(http.client.IncompleteRead):
        call(path="/watch?watch=true")


def test_stalled_headers_hit_client_timeout(proxy, call, upstream):
    with proxy.faults(rule("stall-headers", seconds=30, commit=True)), pytest.raises(TimeoutError):
        call(**POST, timeout=0.2)
    assert upstream.objects == [{"name": "a"}]


def test_stalled_headers_without_commit_reach_no_server(proxy, call, upstream):
    with proxy.faults(rule("stall-headers", seconds=0.1)), pytest.raises(OSError):
        call(**POST)
    assert upstream.objects == []


def test_stalled_body_has_headers(proxy, open_connection):
    with proxy.faults(rule("stall-body", seconds=30)), open_connection(timeout=0.2) as caller:
        caller.connection.request("GET", "/objects")
        answer = caller.connection.getresponse()
        assert answer.status == 200
        with pytest.raises(TimeoutError):
            answer.read()


def test_slow_responses_arrive(proxy, call):
    began = time.monotonic()
    with proxy.faults(rule("slow", seconds=0.2)):
        answer, _ = call()
    assert answer.status == 200
    assert time.monotonic() - began >= 0.2


def test_slow_request_is_forwarded_after_client_disconnect(proxy, call, upstream):
    with proxy.faults(rule("slow", seconds=0.3)), pytest.raises(TimeoutError):
        call(**POST, timeout=0.1)
    assert eventually(lambda: upstream.objects) == [{"name": "a"}]


def test_refuse_closes_port_temporarily(proxy, call):
    with proxy.faults(rule("refuse", seconds=0.3, count=1)), pytest.raises(OSError):
        call()
    with pytest.raises(ConnectionRefusedError):
        call()
    listening = Policy(attempts=None, deadline=20, backoff=constant(0.02), retry_on=ConnectionRefusedError)
    answer, _ = listening.call(call)
    assert answer.status == 200


def test_outage_resets_open_connections_and_ends_on_command(proxy, call, open_connection):
    with open_connection() as caller:
        caller()
        proxy.down()
        with pytest.raises((ConnectionResetError, ConnectionRefusedError, http.client.RemoteDisconnected)):
            caller()
    with pytest.raises(ConnectionRefusedError):
        call()
    proxy.up()
    assert call()[0].status == 200


def test_outage_with_resets_records_every_attempt(proxy, call):
    proxy.down("reset")
    for _ in range(3):
        with pytest.raises(OSError):
            call()
    proxy.up()
    assert call()[0].status == 200
    assert proxy.log.faults() == {"outage": 3}


def test_outages_may_overlap(proxy, call):
    proxy.outage(0.05)
    proxy.outage(30, "reset")
    end_of_first = time.monotonic() + 0.2
    while time.monotonic() < end_of_first:
        with pytest.raises(OSError):
            call()
    proxy.up()
    assert call()[0].status == 200


def test_upgrade_is_forwarded_both_ways(proxy):
    with socket.create_connection(("127.0.0.1", proxy.port), timeout=5) as sock:
        sock.sendall(b"GET /exec HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")
        received = b""
        while b"\r\n\r\n" not in received:
            received += sock.recv(1000)
        assert received.startswith(b"HTTP/1.1 101")
        for word in (b"one", b"two"):
            sock.sendall(word)
            assert sock.recv(1000) == b"echo " + word
    assert [record.status for record in proxy.log] == [101]


def test_expect_continue_is_answered(proxy, upstream):
    head = b"POST /objects HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n"
    with socket.create_connection(("127.0.0.1", proxy.port), timeout=5) as sock:
        sock.sendall(head)
        assert sock.recv(1000).startswith(b"HTTP/1.1 100")
        sock.sendall(b"{}")
        assert sock.recv(1000).startswith(b"HTTP/1.1 201")
    assert upstream.objects == [{}]


def test_chunked_request_is_forwarded(proxy, upstream):
    head = b"POST /objects HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
    with socket.create_connection(("127.0.0.1", proxy.port), timeout=5) as sock:
        sock.sendall(head + b'4\r\n{"a"\r\n3\r\n:1}\r\n0\r\n\r\n')
        assert sock.recv(1000).startswith(b"HTTP/1.1 201")
    assert upstream.objects == [{"a": 1}]


@pytest.mark.parametrize(
    "rubbish",
    [
        b"\x16\x03\x01 hello\r\n\r\n",
        b"GET\r\n\r\n",
        b"GET http://[::1 HTTP/1.1\r\n\r\n",
        b"GET / HTTP/1.1\r\nno colon\r\n\r\n",
        b"POST / HTTP/1.1\r\nContent-Length: many\r\n\r\n",
        b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"GET / HTTP/1.1\r\nX: " + b"y" * 300_000,
    ],
)
def test_malformed_request_ends_only_its_connection(proxy, call, rubbish):
    with socket.create_connection(("127.0.0.1", proxy.port), timeout=5) as sock:
        try:
            sock.sendall(rubbish)
            sock.shutdown(socket.SHUT_WR)
            while sock.recv(1000):
                pass
        except OSError:
            pass
    assert call()[0].status == 200


def test_tls_client_on_plain_port_fails_immediately(proxy, call):
    """Container engines try TLS first and fall back when it is rejected."""
    context = ssl.create_default_context()
    sock = socket.create_connection(("127.0.0.1", proxy.port), timeout=5)
    with sock, pytest.raises(ConnectionResetError):
        context.wrap_socket(sock, server_hostname="127.0.0.1")
    assert len(proxy.log) == 0
    assert call()[0].status == 200


def test_unreachable_upstream_is_a_logged_reset(proxy, call, upstream):
    upstream.shutdown()
    upstream.server_close()
    with pytest.raises(OSError):
        call(**POST)
    (record,) = proxy.log
    assert (record.forwarded, record.committed) == (False, False)
    assert record.note.startswith("upstream: not reached")
