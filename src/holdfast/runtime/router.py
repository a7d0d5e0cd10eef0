"""A router in front of many sandboxes: reads from a request's head which one is meant, and joins the two.

The published client names the sandbox in `X-Sandbox-ID`, `X-Sandbox-Namespace`, `X-Sandbox-Port` and, where
it knows, `X-Sandbox-Pod-IP`. From the head on it moves bytes: nothing is buffered, and whoever leaves ends
both ways. It asks nobody who they are: it belongs behind something that does, such as a port-forward. Not
here: what sandboxes answer (server.py).
"""

from __future__ import annotations

import ipaddress
import json
import re
import selectors
import socket
import socketserver
from http import HTTPStatus

from holdfast.runtime.refusal import Refusal

PORT = 8080
_LONGEST_HEAD = 64 * 1024
_PIECE = 64 * 1024
_CONNECT_SECONDS = 5.0
_SILENT_SECONDS = 3600.0
_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")
_DROPPED = {"connection", "keep-alive", "proxy-connection", "x-sandbox-pod-ip"}
_HIGHEST_PORT = 65535


class Head:
    """The request line and headers of one request."""

    def __init__(self, raw: bytes) -> None:
        lines = raw.decode("latin-1").split("\r\n")
        self.line = lines[0]
        self._fields = [line.partition(":") for line in lines[1:]]
        if any(not name or name != name.strip() or not colon for name, colon, _ in self._fields):
            raise Refusal(400, "the request's head is not HTTP")

    def get(self, name: str, default: str = "") -> str:
        """One header's value; refused where it is said twice."""
        found = [value.strip() for field, _, value in self._fields if field.lower() == name.lower()]
        if len(found) > 1:
            raise Refusal(400, f"{name} is there twice")
        return found[0] if found else default

    def forwarded(self) -> bytes:
        """The same for the other end, and that this connection is for this request alone."""
        kept = [f"{name}:{value}" for name, _, value in self._fields if name.lower() not in _DROPPED]
        return "\r\n".join([self.line, *kept, "Connection: close", "", ""]).encode("latin-1")


class Answer:
    """What a sandbox sends back; its head is made to say that the connection ends with it.

    A client that believed otherwise would send its next command into a connection that is being closed.
    """

    def __init__(self) -> None:
        self._head: bytearray | None = bytearray()

    def passed(self, data: bytes) -> bytes:
        """What the client gets of the next bytes."""
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
            return out + Head(raw).forwarded() + rest
        if len(self._head) > _LONGEST_HEAD:
            raise Refusal(502, "the sandbox's answer is not HTTP")
        return out


def target(head: Head) -> tuple[str, int]:
    """Where a request is to go; refused unless it is a pod of a sandbox by all that can be seen."""
    name, namespace = head.get("X-Sandbox-ID"), head.get("X-Sandbox-Namespace", "default")
    if not _NAME.fullmatch(name):
        raise Refusal(400, "X-Sandbox-ID has to name a sandbox")
    if not _LABEL.fullmatch(namespace):
        raise Refusal(400, "X-Sandbox-Namespace is not a namespace")
    port = head.get("X-Sandbox-Port", "8888")
    if not (port.isascii() and port.isdigit() and 0 < int(port) <= _HIGHEST_PORT):
        raise Refusal(400, "X-Sandbox-Port is not a port")
    address = head.get("X-Sandbox-Pod-IP")
    if address:
        return _pod_address(address), int(port)
    return f"{name}.{namespace}.svc.cluster.local", int(port)


def _pod_address(text: str) -> str:
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        raise Refusal(400, "X-Sandbox-Pod-IP is not an address") from None
    if (
        address.is_loopback
        or address.is_link_local
        or address.is_multicast
        or address.is_unspecified
        or getattr(address, "ipv4_mapped", None) is not None
    ):
        raise Refusal(403, "X-Sandbox-Pod-IP is not the address of a pod")
    return str(address)


class Router(socketserver.ThreadingTCPServer):
    """Accepts connections, a thread for each."""

    allow_reuse_address = True
    daemon_threads = True
    request_queue_size = 256

    def __init__(self, address: str, port: int) -> None:
        self.address_family = socket.AF_INET6 if ":" in address else socket.AF_INET
        super().__init__((address, port), Connection)

    def handle_error(self, request: object, client_address: object) -> None:
        """A client or a sandbox that left is nobody's error."""


class Connection(socketserver.BaseRequestHandler):
    """One client, one request, one sandbox."""

    request: socket.socket

    def handle(self) -> None:
        self.request.settimeout(_SILENT_SECONDS)
        try:
            raw, rest = _read_head(self.request)
            if not raw:
                return
            if raw.startswith(b"GET /healthz "):
                self._say(HTTPStatus.OK, "the router is there")
                return
            head = Head(raw)
            with _connected(*target(head)) as sandbox:
                sandbox.sendall(head.forwarded() + rest)
                _join(self.request, sandbox)
        except Refusal as refusal:
            self._say(refusal.status, refusal.message)

    def _say(self, status: int, message: str) -> None:
        content = json.dumps({"message": message}).encode()
        words = HTTPStatus(status).phrase
        head = (
            f"HTTP/1.1 {int(status)} {words}\r\nContent-Type: application/json\r\n"
            f"Content-Length: {len(content)}\r\nConnection: close\r\n\r\n"
        )
        self.request.sendall(head.encode() + content)


def _read_head(client: socket.socket) -> tuple[bytes, bytes]:
    """The head without its blank line, and what came behind it."""
    read = b""
    while b"\r\n\r\n" not in read:
        if len(read) > _LONGEST_HEAD:
            raise Refusal(431, "the request's head is too long")
        data = client.recv(_PIECE)
        if not data:
            return b"", b""
        read += data
    head, _, rest = read.partition(b"\r\n\r\n")
    return head, rest


def _connected(host: str, port: int) -> socket.socket:
    try:
        found = socket.create_connection((host, port), timeout=_CONNECT_SECONDS)
    except OSError as error:
        raise Refusal(502, f"the sandbox cannot be reached: {error}") from error
    found.settimeout(_SILENT_SECONDS)
    return found


def _join(client: socket.socket, sandbox: socket.socket) -> None:
    """Move bytes both ways until one of them is done."""
    answer = Answer()
    with selectors.DefaultSelector() as selector:
        for end in (client, sandbox):
            selector.register(end, selectors.EVENT_READ)
        while ready := selector.select(_SILENT_SECONDS):
            for key, _ in ready:
                if key.fileobj is client:
                    data = client.recv(_PIECE)
                    sandbox.sendall(data)
                else:
                    data = sandbox.recv(_PIECE)
                    client.sendall(answer.passed(data))
                if not data:
                    return


def route(address: str, port: int) -> None:
    """Route until the process ends."""
    with Router(address, port) as router:
        router.serve_forever(poll_interval=3600)
