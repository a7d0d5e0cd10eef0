"""The short way to a server's connections: same requests, same answers, no stale pools."""

from __future__ import annotations

import http.server
import threading

import pytest
import urllib3

from holdfast.kube.straight import go_straight


class Echo(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        self.answer(200, f"{self.command} {self.path}".encode())

    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.answer(200, f"{self.command} {self.path} ".encode() + body)

    def do_HEAD(self):
        self.answer(302, b"", Location="/elsewhere")

    def answer(self, status, body, **headers):
        self.server.peers.add(self.client_address)
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_args):
        pass


@pytest.fixture
def server():
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Echo) as echo:
        echo.daemon_threads = True
        echo.peers = set()
        thread = threading.Thread(target=echo.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        yield echo
        echo.shutdown()
        thread.join()


def managers():
    off = urllib3.Retry.from_int(retries=False, redirect=False)
    long, short = urllib3.PoolManager(retries=off), urllib3.PoolManager(retries=off)
    go_straight(short)
    return long, short


@pytest.mark.parametrize(
    "target",
    [
        "/api/v1/pods",
        "/api/v1/pods?limit=5&fieldSelector=metadata.name%3Dx",
        "/a%2fb/%c3%a9",
        "/a b/é?q=a b",
        "/a/../b/./c",
        "/.hidden",
        "/x#fragment",
        "/x?y=#z",
        "/",
        "//double//slashes",
        "",
        "?only=query",
    ],
)
def test_the_same_is_asked_for(server, target):
    url = f"http://127.0.0.1:{server.server_port}{target}"
    long, short = managers()
    for _ in range(2):
        assert short.request("GET", url).data == long.request("GET", url).data


@pytest.mark.parametrize("size", [0, 1, 1000, 16 * 1024, 16 * 1024 + 1, 300_000])
@pytest.mark.parametrize("kind", [str, bytes])
def test_head_and_body_arrive_whole_on_one_connection(server, size, kind):
    url = f"http://127.0.0.1:{server.server_port}/x"
    body = "y" * size if kind is str else b"y" * size
    _, short = managers()
    for _ in range(3):
        assert short.request("POST", url, body=body).data == b"POST /x " + b"y" * size
        assert short.request("GET", url).data == b"GET /x"
    assert len(server.peers) == 1


def test_a_small_request_is_one_write(server, monkeypatch):
    writes = []
    send = urllib3.connection.HTTPConnection.send
    monkeypatch.setattr(
        urllib3.connection.HTTPConnection,
        "send",
        lambda self, data: (writes.append(len(data)), send(self, data)),
    )
    _, short = managers()
    short.request("POST", f"http://127.0.0.1:{server.server_port}/x", body="y" * 100)
    assert len(writes) == 1


def test_redirects_come_back_as_they_are(server):
    _, short = managers()
    answer = short.request("HEAD", f"http://127.0.0.1:{server.server_port}/x")
    assert (answer.status, answer.headers["Location"]) == (302, "/elsewhere")


def test_nothing_is_kept_after_clear(server):
    url = f"http://127.0.0.1:{server.server_port}/x"
    _, short = managers()
    short.request("GET", url)
    short.request("GET", url)
    assert len(server.peers) == 1
    short.connection_pool_kw["maxsize"] = 3
    short.clear()
    short.request("GET", url)
    assert len(server.peers) == 2
    assert short.connection_from_url(url).pool.maxsize == 3
    short.request("GET", url)
    assert len(server.peers) == 2


def test_many_threads_begin_at_once(server):
    url = f"http://127.0.0.1:{server.server_port}/x"
    _, short = managers()
    start, seen = threading.Barrier(8), []

    def work():
        start.wait()
        seen.extend(short.request("POST", url, body="z", timeout=10).data for _ in range(5))

    threads = [threading.Thread(target=work) for _ in range(8)]
    for each in threads:
        each.start()
    for each in threads:
        each.join(30)
    assert seen == [b"POST /x z"] * 40


def test_what_is_no_address_fails_as_it_did(server):
    long, short = managers()
    for url in ("http://127.0.0.1:99999/x", "http:///x", "ftp://127.0.0.1/x"):
        with pytest.raises(urllib3.exceptions.HTTPError) as as_before:
            long.request("GET", url)
        with pytest.raises(type(as_before.value)):
            short.request("GET", url)


def test_a_proxy_is_left_alone():
    manager = urllib3.ProxyManager("http://127.0.0.1:1")
    go_straight(manager)
    assert "urlopen" not in vars(manager)
