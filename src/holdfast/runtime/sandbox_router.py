"""A router in front of many sandboxes: reads from the headers which one a request is for, and forwards it.

The published client sends `X-Sandbox-ID`, `X-Sandbox-Namespace`, `X-Sandbox-Port` and, if it knows it,
`X-Sandbox-Pod-IP`. Bodies are not buffered, and if one side disconnects, both connections are closed. The
router does not authenticate clients: run it behind something that does, such as a port-forward.
"""

from __future__ import annotations

import ipaddress
import json
import re
import selectors
import socket
import socketserver
from http import HTTPStatus

from holdfast.runtime.http_request import HTTPError

PORT = 8080
_MAX_HEAD_BYTES = 64 * 1024
_CHUNK_SIZE = 64 * 1024
_CONNECT_SECONDS = 5.0
_IDLE_SECONDS = 3600.0
_DNS_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
_SANDBOX_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")
_DROPPED_HEADERS = {"connection", "keep-alive", "proxy-connection", "x-sandbox-pod-ip"}
_MAX_PORT = 65535


class MessageHead:
    """Start line and headers of a request or response."""

    def __init__(self, raw: bytes) -> None:
        lines = raw.decode("latin-1").split("\r\n")
        self.start_line = lines[0]
        self._headers = [line.partition(":") for line in lines[1:]]
        if any(not name or name != name.strip() or not colon for name, colon, _ in self._headers):
            raise HTTPError(400, "the request is not HTTP")

    def get(self, name: str, default: str = "") -> str:
        """Return the value of a header; reject duplicates."""
        values = [value.strip() for field, _, value in self._headers if field.lower() == name.lower()]
        if len(values) > 1:
            raise HTTPError(400, f"duplicate header {name}")
        return values[0] if values else default

    def encode_for_forwarding(self) -> bytes:
        """Return the head for the other side, with `Connection: close`."""
        kept = [f"{name}:{value}" for name, _, value in self._headers if name.lower() not in _DROPPED_HEADERS]
        return "\r\n".join([self.start_line, *kept, "Connection: close", "", ""]).encode("latin-1")


class ResponseRewriter:
    """Adds `Connection: close` to the response of a sandbox.

    Otherwise the client would send its next request on a connection that is being closed.
    """

    def __init__(self) -> None:
        self._head: bytearray | None = bytearray()

    def rewrite(self, data: bytes) -> bytes:
        """Return the bytes to send to the client for the next bytes of the sandbox."""
        if self._head is None:
            return data
        self._head += data
        out = b""
        while (end := self._head.find(b"\r\n\r\n")) >= 0:
            raw, rest = bytes(self._head[:end]), self._head[end + 4 :]
            if raw.startswith((b"HTTP/1.1 1", b"HTTP/1.0 1")):
                out, self._head = out + raw + b"\r\n\r\n", rest
                continue
            self._head = None
            return out + MessageHead(raw).encode_for_forwarding() + rest
        if len(self._head) > _MAX_HEAD_BYTES:
            raise HTTPError(502, "the response of the sandbox is not HTTP")
        return out


def sandbox_address(head: MessageHead) -> tuple[str, int]:
    """Return host and port of the sandbox that a request names; reject any other destination."""
    name, namespace = head.get("X-Sandbox-ID"), head.get("X-Sandbox-Namespace", "default")
    if not _SANDBOX_NAME.fullmatch(name):
        raise HTTPError(400, "X-Sandbox-ID is not a sandbox name")
    if not _DNS_LABEL.fullmatch(namespace):
        raise HTTPError(400, "X-Sandbox-Namespace is not a namespace")
    port = head.get("X-Sandbox-Port", "8888")
    if not (port.isascii() and port.isdigit() and 0 < int(port) <= _MAX_PORT):
        raise HTTPError(400, "X-Sandbox-Port is not a port")
    # A client must not reach the router's own pod or the cloud's metadata service through it.
    address = head.get("X-Sandbox-Pod-IP")
    if address:
        return _check_pod_address(address), int(port)
    return f"{name}.{namespace}.svc.cluster.local", int(port)


def _check_pod_address(text: str) -> str:
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        raise HTTPError(400, "X-Sandbox-Pod-IP is not an address") from None
    if (
        address.is_loopback
        or address.is_link_local
        or address.is_multicast
        or address.is_unspecified
        or getattr(address, "ipv4_mapped", None) is not None
    ):
        raise HTTPError(403, "X-Sandbox-Pod-IP is not the address of a pod")
    return str(address)


class Router(socketserver.ThreadingTCPServer):
    """Handles each connection on its own thread."""

    allow_reuse_address = True
    daemon_threads = True
    request_queue_size = 256

    def __init__(self, address: str, port: int) -> None:
        self.address_family = socket.AF_INET6 if ":" in address else socket.AF_INET
        super().__init__((address, port), RouterConnection)

    def handle_error(self, request: object, client_address: object) -> None:
        """Ignore lost connections."""


class RouterConnection(socketserver.BaseRequestHandler):
    """Forwards one request of a client to a sandbox."""

    request: socket.socket

    def handle(self) -> None:
        """Read one request head, connect to the sandbox it names, and copy data both ways."""
        self.request.settimeout(_IDLE_SECONDS)
        try:
            raw, rest = _read_head(self.request)
            if not raw:
                return
            if raw.startswith(b"GET /healthz "):
                self._send_message(HTTPStatus.OK, "ok")
                return
            head = MessageHead(raw)
            with _connect(*sandbox_address(head)) as sandbox:
                sandbox.sendall(head.encode_for_forwarding() + rest)
                _relay(self.request, sandbox)
        except HTTPError as error:
            self._send_message(error.status, error.message)

    def _send_message(self, status: int, message: str) -> None:
        content = json.dumps({"message": message}).encode()
        phrase = HTTPStatus(status).phrase
        head = (
            f"HTTP/1.1 {int(status)} {phrase}\r\nContent-Type: application/json\r\n"
            f"Content-Length: {len(content)}\r\nConnection: close\r\n\r\n"
        )
        self.request.sendall(head.encode() + content)


def _read_head(client: socket.socket) -> tuple[bytes, bytes]:
    """Return the head without its blank line, and the data after it."""
    read = b""
    while b"\r\n\r\n" not in read:
        if len(read) > _MAX_HEAD_BYTES:
            raise HTTPError(431, "the request headers are too long")
        data = client.recv(_CHUNK_SIZE)
        if not data:
            return b"", b""
        read += data
    head, _, rest = read.partition(b"\r\n\r\n")
    return head, rest


def _connect(host: str, port: int) -> socket.socket:
    try:
        connection = socket.create_connection((host, port), timeout=_CONNECT_SECONDS)
    except OSError as error:
        raise HTTPError(502, f"the sandbox cannot be reached: {error}") from error
    connection.settimeout(_IDLE_SECONDS)
    return connection


def _relay(client: socket.socket, sandbox: socket.socket) -> None:
    """Copy data in both directions until one side closes."""
    response = ResponseRewriter()
    with selectors.DefaultSelector() as selector:
        for connection in (client, sandbox):
            selector.register(connection, selectors.EVENT_READ)
        while ready := selector.select(_IDLE_SECONDS):
            for key, _ in ready:
                if key.fileobj is client:
                    data = client.recv(_CHUNK_SIZE)
                    sandbox.sendall(data)
                else:
                    data = sandbox.recv(_CHUNK_SIZE)
                    client.sendall(response.rewrite(data))
                if not data:
                    return


def serve(address: str, port: int) -> None:
    """Run the router until the process ends."""
    with Router(address, port) as router:
        router.serve_forever(poll_interval=3600)
