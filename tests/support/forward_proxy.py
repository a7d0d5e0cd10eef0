"""A small real forward proxy with a login, and an HTTPS server with a certificate of a private CA."""

from __future__ import annotations

import base64
import datetime as dt
import select
import socket
import ssl
import threading
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Self
from urllib.parse import urlsplit

from holdfast.pki import CertificateAuthority

if TYPE_CHECKING:
    from pathlib import Path


class LocalServer:
    """A server on a thread; `with` stops it."""

    def __init__(self, address: str, handler: type[BaseHTTPRequestHandler]) -> None:
        self.server = ThreadingHTTPServer((address, 0), handler)
        self.server.daemon_threads = True
        self.host = f"{address}:{self.server.server_port}"

    def __enter__(self) -> Self:
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self.server.shutdown()
        self.server.server_close()


class PrivateTlsServer(LocalServer):
    """Answers `private` over TLS; `ca` is the file of its CA."""

    def __init__(self, address: str, folder: Path) -> None:
        super().__init__(address, _Answer)
        authority = CertificateAuthority(at=dt.datetime.now(dt.UTC))
        pair = authority.issue_server([address])
        self.ca = folder / "private-ca.pem"
        self.ca.write_bytes(authority.certificate)
        chain = folder / "server.pem"
        chain.write_bytes(pair.certificate + pair.key)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(chain)
        self.server.socket = context.wrap_socket(
            self.server.socket, server_side=True, do_handshake_on_connect=False
        )
        self.url = f"https://{self.host}/"


class ForwardProxy(LocalServer):
    """Forwards CONNECT and plain requests with the right login; `requests` lists method and target."""

    def __init__(self, address: str, login: str = "") -> None:
        super().__init__(address, _Proxy)
        self.requests: list[tuple[str, str]] = []
        self.server.recorded = self.requests
        self.server.expected = f"Basic {base64.b64encode(login.encode()).decode()}" if login else ""
        self.url = f"http://{self.host}"


class _Answer(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Length", "7")
        self.end_headers()
        self.wfile.write(b"private")

    def log_message(self, *_: object) -> None:
        pass


class _Proxy(BaseHTTPRequestHandler):
    # curl answers a request for a login on the same connection only.
    protocol_version = "HTTP/1.1"

    def _is_allowed(self) -> bool:
        if self.headers.get("Proxy-Authorization", "") == self.server.expected:
            self.server.recorded.append((self.command, self.path))
            return True
        self.send_response(407)
        self.send_header("Proxy-Authenticate", "Basic")
        self.send_header("Content-Length", "0")
        self.end_headers()
        return False

    def do_CONNECT(self) -> None:
        if not self._is_allowed():
            return
        host, _, port = self.path.rpartition(":")
        with socket.create_connection((host, int(port)), timeout=20) as upstream:
            self.send_response(200)
            self.end_headers()
            ends = {self.connection: upstream, upstream: self.connection}
            while True:
                readable, _, _ = select.select(list(ends), [], [], 30)
                chunks = [(ends[end], end.recv(65536)) for end in readable]
                if not all(chunk for _, chunk in chunks) or not chunks:
                    break
                for target, chunk in chunks:
                    target.sendall(chunk)
        self.close_connection = True

    def do_GET(self) -> None:
        if not self._is_allowed():
            return
        url = urlsplit(self.path)
        connection = HTTPConnection(url.netloc, timeout=20)
        connection.request("GET", url.path or "/")
        answer = connection.getresponse()
        body = answer.read()
        self.send_response(answer.status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass
