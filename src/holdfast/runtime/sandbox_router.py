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
import time
from http import HTTPStatus

from holdfast.runtime.http_request import HTTPError
from holdfast.runtime.http_server import LimitedServer

PORT = 8080
_MAX_HEAD_BYTES = 64 * 1024
_CHUNK_SIZE = 64 * 1024
_HEAD_SECONDS = 10.0
_CONNECT_SECONDS = 5.0
_IDLE_SECONDS = 3600.0
_DNS_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
_SANDBOX_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")
# Hop-by-hop headers, and the address of the pod, which only the router uses.
_DROPPED_HEADERS = {"connection", "keep-alive", "proxy-connection", "x-sandbox-pod-ip"}
_MAX_PORT = 65535


class MessageHead:
    """Start line and headers of a request or response."""

    def __init__(self, raw: bytes, *, error_status: int = 400, kind: str = "request") -> None:
        lines = raw.decode("latin-1").split("\r\n")
        self.start_line = lines[0]
        self._headers = [line.partition(":") for line in lines[1:]]
        if any(not name or name != name.strip() or not colon for name, colon, _ in self._headers):
            raise HTTPError(error_status, f"the {kind} is not HTTP")

    def get(self, name: str, default: str = "") -> str:
        """Return the value of a header; reject duplicates."""
        values = [value.strip() for field, _, value in self._headers if field.lower() == name.lower()]
        # Of duplicate headers, the router could check one and the sandbox use the other.
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
            head = MessageHead(raw, error_status=502, kind="response of the sandbox")
            return out + head.encode_for_forwarding() + rest
        if len(self._head) > _MAX_HEAD_BYTES:
            raise HTTPError(502, "the response of the sandbox is not HTTP")
        return out


def sandbox_address(head: MessageHead) -> tuple[str, int]:
    """Return host and port of the sandbox that a request names.

    Name, namespace and port must be well-formed. A pod address must not be loopback, link-local, multicast or
    unspecified. Nothing else is checked: a client can also reach other pods, including the router's own.
    """
    name, namespace = head.get("X-Sandbox-ID"), head.get("X-Sandbox-Namespace", "default")
    if not _SANDBOX_NAME.fullmatch(name):
        raise HTTPError(400, "X-Sandbox-ID is not a sandbox name")
    if not _DNS_LABEL.fullmatch(namespace):
        raise HTTPError(400, "X-Sandbox-Namespace is not a namespace")
    port = head.get("X-Sandbox-Port", "8888")
    if not (port.isascii() and port.isdigit() and 0 < int(port) <= _MAX_PORT):
        raise HTTPError(400, "X-Sandbox-Port is not a port")
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
        # The router's own network namespace, and the cloud's metadata service.
        address.is_loopback
        or address.is_link_local
        or address.is_multicast
        or address.is_unspecified
        # In older Python versions, the properties above ignore an IPv4 address inside an IPv6 address.
        or getattr(address, "ipv4_mapped", None) is not None
    ):
        raise HTTPError(403, "X-Sandbox-Pod-IP is not the address of a pod")
    return str(address)


class Router(LimitedServer):
    """Forwards requests to sandboxes; a client must send a request's head within `head_seconds`."""

    def __init__(self, address: str, port: int, *, head_seconds: float = _HEAD_SECONDS) -> None:
        self.head_seconds = head_seconds
        super().__init__(address, port, RouterConnection)


class RouterConnection(socketserver.BaseRequestHandler):
    """Forwards one request of a client to a sandbox."""

    request: socket.socket
    server: Router

    def handle(self) -> None:
        """Read one request head, connect to the sandbox it names, and copy data both ways."""
        try:
            raw, rest = _read_head(self.request, time.monotonic() + self.server.head_seconds)
            self.request.settimeout(_IDLE_SECONDS)
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


def _read_head(client: socket.socket, deadline: float) -> tuple[bytes, bytes]:
    """Return the head without its blank line, and the data after it."""
    read = b""
    while b"\r\n\r\n" not in read:
        if len(read) > _MAX_HEAD_BYTES:
            raise HTTPError(431, "the request headers are too long")
        # Clients are not authenticated: one that sends nothing, or a byte at a time, must not keep its slot.
        client.settimeout(max(0.001, deadline - time.monotonic()))
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
                # A client keeps its sending side open until it has the response: after EOF it is gone.
                if not data:
                    return


def serve(address: str, port: int) -> None:
    """Run the router until the process ends."""
    with Router(address, port) as router:
        router.serve_forever(poll_interval=3600)
