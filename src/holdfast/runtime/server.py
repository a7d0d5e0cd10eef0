"""The runtime's HTTP server: commands and files of one sandbox, as the published client asks for them.

    POST execute   {"command": …, "timeout_seconds"?: …} -> {"stdout", "stderr", "exit_code", "timed_out"}
    POST upload    multipart/form-data, the part `file`; its file name is the path
    GET  download/<path>, list/<path>, exists/<path>, and / for whoever asks whether it is there

Whoever reaches its port may use the sandbox, as with the published runtime: what stands in front decides who
that is. A web page is never who: its browser would ask for it unseen, so a request that names an `Origin` is
refused, and a command has to come as JSON, which no page may send elsewhere unasked. Not here: what the
requests do (execution.py, files.py).
"""

from __future__ import annotations

import json
import math
import os
import socket
import sys
import threading
import urllib.parse
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

from holdfast.runtime.body import Body
from holdfast.runtime.execution import Execution
from holdfast.runtime.files import Files
from holdfast.runtime.multipart import Upload
from holdfast.runtime.refusal import Refusal

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

PORT = 8888
_LONGEST_REQUEST = 4 * 1024 * 1024
_MOST_OUTPUT = 8 * 1024 * 1024
_MOST_CONNECTIONS = 128
_MOST_SKIPPED = 64 * 1024 * 1024
_PIECE = 256 * 1024


class Server(ThreadingHTTPServer):
    """Serves one folder; a bounded number of connections at a time, the others wait to be accepted."""

    daemon_threads = True
    request_queue_size = 256

    def __init__(self, address: str, port: int, root: Path, *, most_output: int = _MOST_OUTPUT) -> None:
        self.address_family = socket.AF_INET6 if ":" in address else socket.AF_INET
        self._free = threading.BoundedSemaphore(_MOST_CONNECTIONS)
        self.root, self.files, self.most_output = root, Files(root), most_output
        super().__init__((address, port), Handler)

    def server_bind(self) -> None:
        if self.address_family == socket.AF_INET6:
            self.socket.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        # The base class looks the host's name up here, which may take seconds without DNS.
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.socket.bind(self.server_address)
        self.server_address = self.socket.getsockname()
        self.server_name, self.server_port = "sandbox", self.server_address[1]

    def process_request(self, request: Any, client_address: Any) -> None:
        self._free.acquire()
        super().process_request(request, client_address)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._free.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that left is nobody's error; anything else is ours, and goes to the pod's log."""
        if not isinstance(sys.exception(), ConnectionError | TimeoutError):
            super().handle_error(request, client_address)


class Handler(BaseHTTPRequestHandler):
    """One connection."""

    protocol_version = "HTTP/1.1"
    server_version = "holdfast-runtime"
    sys_version = ""
    timeout = 120
    server: Server

    def do_GET(self) -> None:
        self._answer(self._get)

    def do_POST(self) -> None:
        self._answer(self._post)

    def _answer(self, serve: Callable[[Body], None]) -> None:
        self._body: Body | None = None
        try:
            self._body = Body(self.rfile, self.headers)  # type: ignore[arg-type]
            self._refuse_pages()
            serve(self._body)
        except Refusal as refusal:
            self._skip_body()
            self._json({"message": refusal.message}, status=refusal.status)
        if not self._is_body_read():
            self.close_connection = True

    def _refuse_pages(self) -> None:
        if "Origin" in self.headers:
            raise Refusal(403, "a web page may not use the sandbox's runtime")

    def _skip_body(self) -> None:
        """Read on for a while: a connection that is closed over unread bytes takes the answer with it."""
        left = _MOST_SKIPPED
        try:
            while left > 0 and self._body is not None and (data := self._body.read(_PIECE)):
                left -= len(data)
        except Refusal:
            self.close_connection = True

    def _is_body_read(self) -> bool:
        return self._body is not None and self._body.ended

    def _get(self, body: Body) -> None:
        del body
        path = urllib.parse.urlsplit(self.path).path.lstrip("/")
        word, _, rest = path.partition("/")
        named = urllib.parse.unquote(rest, errors="surrogateescape")
        if word == "download":
            self._download(named)
        elif word == "list":
            self._json(self.server.files.listing(named))
        elif word == "exists":
            self._json({"path": named, "exists": self.server.files.exists(named)})
        elif word in ("", "healthz"):
            self._json({"status": "ok", "message": "the sandbox's runtime"})
        else:
            raise Refusal(404, f"there is no {word!r} to get")

    def _post(self, body: Body) -> None:
        word = urllib.parse.urlsplit(self.path).path.strip("/")
        if word == "execute":
            self._execute(body)
        elif word == "upload":
            self._upload(body)
        else:
            raise Refusal(404, f"there is no {word!r} to post to")

    def _execute(self, body: Body) -> None:
        if self.headers.get_content_type() != "application/json":
            raise Refusal(415, "a command has to come as JSON, with `Content-Type: application/json`")
        try:
            asked = json.loads(body.read_all(_LONGEST_REQUEST))
        except ValueError as error:
            raise Refusal(400, f"the request is not JSON: {error}") from error
        command = asked.get("command") if isinstance(asked, dict) else None
        if not isinstance(command, str) or not command.strip():
            raise Refusal(422, "`command` has to be a text")
        seconds = _seconds(asked.get("timeout_seconds"))
        execution = Execution(
            command, folder=self.server.root, limit=self.server.most_output, peer=self.connection
        )
        self._json(execution.result(seconds))

    def _upload(self, body: Body) -> None:
        upload = Upload(body, self.headers.get("Content-Type", ""))
        name = upload.filename
        size = self.server.files.write(name, upload.content())
        self._json({"message": f"{name} has been written", "size": size})

    def _download(self, path: str) -> None:
        descriptor = self.server.files.open(path)
        with open(descriptor, "rb", buffering=0) as file:  # noqa: PTH123 (a descriptor)
            left = os.fstat(descriptor).st_size
            self.send_response(HTTPStatus.OK)
            self.send_header("Content-Type", "application/octet-stream")
            self.send_header("Content-Length", str(left))
            self.end_headers()
            while left and (piece := file.read(min(_PIECE, left))):
                self.wfile.write(piece)
                left -= len(piece)
            if left:
                # Shorter than announced: somebody cut it meanwhile, and the client has to notice.
                self.close_connection = True

    def _json(self, told: Any, *, status: int = 200) -> None:
        try:
            content = json.dumps(told, ensure_ascii=False).encode()
        except UnicodeEncodeError:
            # A file's name may be no text at all; escaped it is at least JSON.
            content = json.dumps(told).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.close_connection = self.close_connection or not self._is_body_read()
        self.end_headers()
        self.wfile.write(content)

    def end_headers(self) -> None:
        if self.close_connection:
            self.send_header("Connection", "close")
        super().end_headers()

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 (the base class's name)
        """Commands and paths are their user's own business: nothing is logged."""


def _seconds(asked: Any) -> float | None:
    if asked is None:
        return None
    if (
        isinstance(asked, bool)
        or not isinstance(asked, int | float)
        or not math.isfinite(asked)
        or asked <= 0
    ):
        raise Refusal(422, "`timeout_seconds` has to be a number above 0")
    return float(asked)


def serve(address: str, port: int, root: Path) -> None:
    """Serve until the process ends."""
    with Server(address, port, root) as server:
        server.serve_forever(poll_interval=3600)
