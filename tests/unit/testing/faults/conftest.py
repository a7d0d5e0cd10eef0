"""A small upstream server on loopback: the proxy is tested over real sockets."""

from __future__ import annotations

import http.client
import json
import threading
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from holdfast.testing.faults import FaultProxy

EVENTS = 5


class Upstream(BaseHTTPRequestHandler):
    """Objects at /objects, a watch at /watch, an echo behind an upgrade at /exec."""

    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def do_GET(self):
        if self.path.startswith("/exec"):
            return self.echo()
        if "watch=true" in self.path:
            return self.watch()
        return self.answer(200, {"items": self.server.objects, "pad": "x" * 200})

    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.objects.append(json.loads(body))
        self.server.seen_headers = dict(self.headers)
        self.answer(201, json.loads(body))

    def do_DELETE(self):
        self.answer(404, {"kind": "Status", "code": 404})

    def answer(self, status, content):
        raw = json.dumps(content).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(raw)))
        self.end_headers()
        self.wfile.write(raw)

    def watch(self):
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        forever = "forever" in self.path
        # A client may disconnect while events are sent.
        with suppress(ConnectionResetError, BrokenPipeError):
            for number in range(EVENTS):
                line = json.dumps({"type": "ADDED", "object": {"number": number}}).encode() + b"\n"
                self.wfile.write(b"%x\r\n%b\r\n" % (len(line), line))
            if forever:
                self.connection.recv(1)
        if forever:
            self.server.watchers.append("left")
            return
        self.wfile.write(b"0\r\n\r\n")

    def echo(self):
        self.wfile.write(b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: echo\r\nConnection: Upgrade\r\n\r\n")
        while data := self.connection.recv(1000):
            self.connection.sendall(b"echo " + data)
        self.close_connection = True


class Server(ThreadingHTTPServer):
    """Does not log disconnecting clients: the proxy drops connections on purpose."""

    daemon_threads = True

    def handle_error(self, request, client_address):
        pass


@pytest.fixture
def upstream():
    server = Server(("127.0.0.1", 0), Upstream)
    server.objects, server.watchers = [], []
    server.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


class Caller:
    """One client connection to the proxy, for assertions about the raw bytes."""

    def __init__(self, port, timeout=5.0):
        self.connection = http.client.HTTPConnection("127.0.0.1", port, timeout=timeout)

    def __call__(self, method="GET", path="/objects", body=None, **headers):
        self.connection.request(method, path, None if body is None else json.dumps(body), headers)
        answer = self.connection.getresponse()
        return answer, answer.read()


@pytest.fixture
def proxy(upstream):
    with FaultProxy(upstream.url, tls=False) as started:
        yield started


@pytest.fixture
def call(proxy):
    callers = []

    def fresh(*args, timeout=5.0, **kwargs):
        caller = Caller(proxy.port, timeout)
        callers.append(caller)
        return caller(*args, **kwargs)

    yield fresh
    for caller in callers:
        caller.connection.close()


@pytest.fixture
def open_connection(proxy):
    @contextmanager
    def connect(timeout=5.0):
        caller = Caller(proxy.port, timeout)
        try:
            yield caller
        finally:
            caller.connection.close()

    return connect
