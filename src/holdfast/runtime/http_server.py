"""The HTTP server of the runtime: commands and files of one sandbox, for the published client.

    POST execute   {"command": ..., "timeout_seconds"?: ...} -> {"stdout", "stderr", "exit_code", "timed_out"}
    POST upload    multipart/form-data with the part `file`; its file name is the path
    GET  download/<path>, list/<path>, exists/<path>, and / as health check

Environment variables, the first two as of the published runtime:

    SANDBOX_BASE_DIR                the served directory, default /sandbox
    SANDBOX_EXEC_TIMEOUT_SECONDS    limit of a command without `timeout_seconds`, default 300
    HOLDFAST_RUNTIME_SHELL          run commands with this shell instead of splitting them into arguments

Every client that can reach the port can use the sandbox, as with the published runtime: access is controlled
in front of it. Web pages are rejected, because a browser would send their requests without the user's
knowledge: requests with an `Origin` header fail, and commands must be JSON, which a page cannot send to
another origin.
"""

from __future__ import annotations

import dataclasses
import json
import math
import os
import socket
import socketserver
import sys
import threading
import urllib.parse
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import TYPE_CHECKING, Any

from holdfast.runtime.execution import CommandExecution, failed_start, split_command
from holdfast.runtime.http_request import HTTPError, MultipartUpload, RequestBody
from holdfast.runtime.workspace_files import WorkspaceFiles

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

PORT = 8888
_COMMAND_TIMEOUT = 300.0
_BACKLOG = 256
_MAX_REQUEST_BYTES = 4 * 1024 * 1024
_MAX_OUTPUT_BYTES = 8 * 1024 * 1024
_MAX_CONNECTIONS = 128
_MAX_DISCARDED_BYTES = 64 * 1024 * 1024
_CHUNK_SIZE = 256 * 1024


@dataclasses.dataclass(frozen=True)
class RuntimeSettings:
    """The settings of a runtime; without `shell`, commands are split into arguments."""

    root: Path
    command_timeout: float = _COMMAND_TIMEOUT
    shell: str | None = None
    max_output: int = _MAX_OUTPUT_BYTES

    @classmethod
    def from_environment(cls, environment: Mapping[str, str]) -> RuntimeSettings:
        """Read the settings; end the process if one is invalid."""
        text = environment.get("SANDBOX_EXEC_TIMEOUT_SECONDS") or str(_COMMAND_TIMEOUT)
        try:
            timeout = float(text)
        except ValueError:
            timeout = math.nan
        if not (math.isfinite(timeout) and timeout > 0):
            sys.exit(f"SANDBOX_EXEC_TIMEOUT_SECONDS is not a number of seconds: {text!r}")
        root = Path(environment.get("SANDBOX_BASE_DIR") or "/sandbox")
        return cls(root, timeout, environment.get("HOLDFAST_RUNTIME_SHELL") or None)


class RuntimeServer(socketserver.ThreadingTCPServer):
    """Serves one directory, each connection in a thread; connections above the limit wait to be accepted."""

    # Not HTTPServer: it resolves the host name, which takes seconds without DNS.
    allow_reuse_address = True
    daemon_threads = True
    request_queue_size = _BACKLOG

    def __init__(self, address: str, port: int, settings: RuntimeSettings) -> None:
        self.settings, self.files = settings, WorkspaceFiles(settings.root)
        self.address_family = socket.AF_INET6 if ":" in address else socket.AF_INET
        self._connection_slots = threading.BoundedSemaphore(_MAX_CONNECTIONS)
        super().__init__((address, port), RuntimeRequestHandler)

    def server_bind(self) -> None:
        if self.address_family == socket.AF_INET6:
            self.socket.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        super().server_bind()

    def process_request(self, request: Any, client_address: Any) -> None:
        # Blocks the accept loop: further clients wait in the kernel's queue and start no threads.
        self._connection_slots.acquire()
        try:
            super().process_request(request, client_address)
        except BaseException:  # no thread was started, so none releases the slot
            self._connection_slots.release()
            raise

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._connection_slots.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Log errors, except lost connections, to the pod's log."""
        if not isinstance(sys.exception(), ConnectionError | TimeoutError):
            super().handle_error(request, client_address)


class RuntimeRequestHandler(BaseHTTPRequestHandler):
    """Handles the requests of one connection."""

    protocol_version = "HTTP/1.1"
    server_version = "holdfast-runtime"
    sys_version = ""
    timeout = 120
    server: RuntimeServer

    def do_GET(self) -> None:
        self._handle_request(self._get)

    def do_POST(self) -> None:
        self._handle_request(self._post)

    def _handle_request(self, serve: Callable[[RequestBody], None]) -> None:
        self._body: RequestBody | None = None
        try:
            self._body = RequestBody(self.rfile, self.headers)  # type: ignore[arg-type]
            self._reject_browsers()
            serve(self._body)
        except HTTPError as error:
            self._discard_body()
            self._send_json({"message": error.message}, status=error.status)
        if not self._is_body_complete():
            self.close_connection = True

    def _reject_browsers(self) -> None:
        if "Origin" in self.headers:
            raise HTTPError(403, "requests from web pages are not allowed")

    def _discard_body(self) -> None:
        """Read the rest of the body, up to a limit: closing with unread bytes would discard the response."""
        left = _MAX_DISCARDED_BYTES
        try:
            while left > 0 and self._body is not None and (data := self._body.read(_CHUNK_SIZE)):
                left -= len(data)
        except HTTPError:
            self.close_connection = True

    def _is_body_complete(self) -> bool:
        return self._body is not None and self._body.is_complete

    def _get(self, body: RequestBody) -> None:
        del body
        path = urllib.parse.urlsplit(self.path).path.lstrip("/")
        endpoint, _, rest = path.partition("/")
        file_path = urllib.parse.unquote(rest, errors="surrogateescape")
        if endpoint == "download":
            self._download(file_path)
        elif endpoint == "list":
            self._send_json(self.server.files.list_directory(file_path))
        elif endpoint == "exists":
            self._send_json({"path": file_path, "exists": self.server.files.exists(file_path)})
        elif endpoint in ("", "healthz"):
            self._send_json({"status": "ok", "message": "Sandbox Runtime is active."})
        else:
            raise HTTPError(404, f"GET {endpoint!r} is not an endpoint")

    def _post(self, body: RequestBody) -> None:
        endpoint = urllib.parse.urlsplit(self.path).path.strip("/")
        if endpoint == "execute":
            self._execute(body)
        elif endpoint == "upload":
            self._upload(body)
        else:
            raise HTTPError(404, f"POST {endpoint!r} is not an endpoint")

    def _execute(self, body: RequestBody) -> None:
        if self.headers.get_content_type() != "application/json":
            raise HTTPError(415, "a command must be JSON with `Content-Type: application/json`")
        try:
            request = json.loads(body.read_all(_MAX_REQUEST_BYTES))
        except ValueError as error:
            raise HTTPError(400, f"the request is not JSON: {error}") from error
        command = request.get("command") if isinstance(request, dict) else None
        if not isinstance(command, str):
            raise HTTPError(422, "`command` must be a string")
        settings = self.server.settings
        timeout = _parse_timeout(request.get("timeout_seconds")) or settings.command_timeout
        try:
            execution = CommandExecution(
                split_command(command, settings.shell), cwd=settings.root, output_limit=settings.max_output,
                client=self.connection,
            )  # fmt: skip
        except (OSError, ValueError) as error:
            # As the published runtime reports it.
            self._send_json(failed_start(error))
            return
        self._send_json(execution.wait(timeout))

    def _upload(self, body: RequestBody) -> None:
        upload = MultipartUpload(body, self.headers.get("Content-Type", ""))
        name = upload.filename
        self.server.files.write(name, upload.content())
        self._send_json({"message": f"File '{name}' uploaded successfully."})

    def _download(self, path: str) -> None:
        descriptor = self.server.files.open(path)
        with open(descriptor, "rb", buffering=0) as file:  # noqa: PTH123 (a descriptor)
            # The size at this moment: a file that grows must not exceed the announced length.
            left = os.fstat(descriptor).st_size
            self.send_response(HTTPStatus.OK)
            self.send_header("Content-Type", "application/octet-stream")
            self.send_header("Content-Length", str(left))
            self.end_headers()
            while left and (chunk := file.read(min(_CHUNK_SIZE, left))):
                self.wfile.write(chunk)
                left -= len(chunk)
            if left:
                # The file was truncated meanwhile: closing the connection lets the client detect it.
                self.close_connection = True

    def _send_json(self, value: Any, *, status: int = 200) -> None:
        try:
            content = json.dumps(value, ensure_ascii=False).encode()
        except UnicodeEncodeError:
            # A file name that is not valid UTF-8 is escaped.
            content = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.close_connection = self.close_connection or not self._is_body_complete()
        self.end_headers()
        self.wfile.write(content)

    def end_headers(self) -> None:
        if self.close_connection:
            self.send_header("Connection", "close")
        super().end_headers()

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 (the base class's name)
        """Log nothing: commands and paths are private to the user."""


def _parse_timeout(value: Any) -> float | None:
    if value is None:
        return None
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not (is_number and math.isfinite(value) and value > 0):
        raise HTTPError(422, "`timeout_seconds` must be a number greater than 0")
    return float(value)


def main() -> None:
    """Run `serve` (the default) or `router` until the process ends."""
    args = sys.argv[1:] or ["serve"]
    address = os.environ.get("HOLDFAST_RUNTIME_LISTEN", "0.0.0.0")  # noqa: S104 (the pod's network namespace)
    if args == ["serve"]:
        settings = RuntimeSettings.from_environment(os.environ)
        port = _port_from_environment("HOLDFAST_RUNTIME_PORT", PORT)
        with RuntimeServer(address, port, settings) as server:
            _report_listening(server.server_address[1])
            server.serve_forever(poll_interval=3600)
    elif args == ["router"]:
        from holdfast.runtime import sandbox_router

        router_settings = sandbox_router.RouterSettings.from_environment(os.environ)
        is_ipv6 = ":" in address
        listener = socket.create_server(
            (address, _port_from_environment("HOLDFAST_ROUTER_PORT", sandbox_router.PORT)), backlog=_BACKLOG,
            family=socket.AF_INET6 if is_ipv6 else socket.AF_INET, dualstack_ipv6=is_ipv6,
        )  # fmt: skip
        _report_listening(listener.getsockname()[1])
        sandbox_router.serve(listener, router_settings)
    else:
        sys.exit(f"unknown command {' '.join(args)!r}; use serve or router")


def _report_listening(port: int) -> None:
    sys.stderr.write(f"listening on port {port}\n")


def _port_from_environment(variable: str, default: int) -> int:
    text = os.environ.get(variable, str(default))
    if not (text.isascii() and text.isdigit()):
        sys.exit(f"{variable} is not a port: {text!r}")
    return int(text)
