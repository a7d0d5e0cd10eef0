"""An HTTP service that runs Python code in sandboxes of a warm pool: one request, one sandbox.

    curl --data-binary 'print(6 * 7)' http://127.0.0.1:8700/

The pool keeps sandboxes ready, so that a request does not wait for a pod to start. The service listens on
loopback, because it has no authentication: who can connect can run code.
"""

from __future__ import annotations

import argparse
import json
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from holdfast import Gateway
from holdfast.client import Sandboxes
from holdfast.errors import DeadlineExceededError, HoldfastError, TemporaryError

MAX_CODE_BYTES = 100_000
MAX_SECONDS = 30


def ensure_pool(gateway: Gateway, name: str, size: int) -> None:
    """Create the template and the pool, or accept those of an earlier start."""
    with gateway.templates() as templates, gateway.pools() as pools:
        templates.create(name, memory="256Mi", cpu="1", workspace=False)
        pools.create(name, template=name, size=size)
        pools.wait(name)


def run_code(sandboxes: Sandboxes, template: str, code: bytes) -> dict[str, object]:
    """Run code in a sandbox of the pool, which is deleted afterwards and replaced by the pool."""
    with sandboxes.temporary(template=template, prefix="request") as sandbox:
        result = sandbox.exec("python3", "-", stdin=code, timeout=MAX_SECONDS)
        return {
            "exit_code": result.exit_code,
            "stdout": result.text,
            "stderr": result.stderr.decode(errors="replace"),
        }


class Service(ThreadingHTTPServer):
    """Serves requests in threads, which share one connection to the gateway."""

    def __init__(self, port: int, sandboxes: Sandboxes, template: str) -> None:
        super().__init__(("127.0.0.1", port), RequestHandler)
        self.sandboxes, self.template = sandboxes, template


class RequestHandler(BaseHTTPRequestHandler):
    """`POST /` runs the body."""

    server: Service

    def do_POST(self) -> None:
        length = int(self.headers.get("Content-Length") or 0)
        if length > MAX_CODE_BYTES:
            self.reply(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, {"error": f"more than {MAX_CODE_BYTES} bytes"})
            return
        code = self.rfile.read(length)
        try:
            self.reply(HTTPStatus.OK, run_code(self.server.sandboxes, self.server.template, code))
        except DeadlineExceededError:
            self.reply(HTTPStatus.OK, {"error": f"the code did not end within {MAX_SECONDS} seconds"})
        except TemporaryError as error:  # the same request may succeed later
            self.reply(HTTPStatus.SERVICE_UNAVAILABLE, {"error": error.message, "code": error.code})
        except HoldfastError as error:
            self.reply(HTTPStatus.INTERNAL_SERVER_ERROR, {"error": error.message, "code": error.code})

    def reply(self, status: HTTPStatus, content: dict[str, object]) -> None:
        """Send a JSON object."""
        body = json.dumps(content).encode() + b"\n"
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


def main() -> None:
    parser = argparse.ArgumentParser(description="Run code in sandboxes of a warm pool.")
    parser.add_argument("--port", type=int, default=8700)
    parser.add_argument("--size", type=int, default=3, help="number of waiting sandboxes")
    parser.add_argument("--name", default="service", help="name of the template and of the pool")
    parser.add_argument("--gateway", help="name of the gateway")
    options = parser.parse_args()
    gateway = Gateway(options.gateway)
    ensure_pool(gateway, options.name, options.size)
    with gateway.sandboxes() as sandboxes, Service(options.port, sandboxes, options.name) as service:
        print(f"ready at http://127.0.0.1:{service.server_port}/", flush=True)
        service.serve_forever()


if __name__ == "__main__":
    main()
