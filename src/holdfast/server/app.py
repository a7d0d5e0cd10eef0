"""The API's routes together, and the health answer beside them.

Not here: listening and TLS (serve.py). Whoever gets as far as a route has shown a client certificate.
"""

# No `from __future__ import annotations`: the framework reads the handlers' annotations as they stand.
import re
from collections.abc import Callable
from typing import Any

from litestar import Litestar, Response, get
from litestar.openapi.config import OpenAPIConfig
from litestar.routes import HTTPRoute

from holdfast import __version__
from holdfast.errors import HoldfastError
from holdfast.server.document import document
from holdfast.server.models import GatewayInfo
from holdfast.server.problems import ApiError, answer
from holdfast.server.routes import Sandboxes, problems, provided
from holdfast.server.service import Service
from holdfast.server.socket_routes import execute, forward
from holdfast.server.stream_routes import Streams


def api(name: str, service: Service) -> Litestar:
    """The application that clients talk to."""

    @get(
        "/v1/gateway",
        summary="The gateway behind this API",
        operation_id="getGateway",
        responses=problems(),
        sync_to_thread=False,
    )
    def gateway() -> GatewayInfo:
        return GatewayInfo(name=name, version=__version__)

    made: dict[str, Any] = {}

    @get("/schema/openapi.json", include_in_schema=False, sync_to_thread=False)
    def describe() -> Response[dict[str, Any]]:
        if not made:
            made.update(document(app.openapi_schema.to_schema()))
        return Response(made, media_type="application/json")

    app = Litestar(
        route_handlers=[gateway, describe, Sandboxes, Streams, execute, forward],
        dependencies={"service": provided(service)},
        # The framework answers a few things before any route; all of them look alike.
        exception_handlers={ApiError: answer, HoldfastError: answer, Exception: answer},
        openapi_config=OpenAPIConfig(title="holdfast gateway", version=__version__, path="/_framework"),
        logging_config=None,
        request_max_body_size=1 << 20,
    )
    return app


def answering_options(app: Litestar) -> Any:
    """The application, with an answer to OPTIONS that knows all methods of a path."""
    allowed = [
        (re.compile(re.sub(r"\{[^}]*\}", "[^/]+", each.path)), ", ".join(sorted(each.methods)).encode())
        for each in app.routes
        if isinstance(each, HTTPRoute)
    ]

    async def layer(scope: Any, receive: Any, send: Any) -> None:
        is_question = scope["type"] == "http" and scope["method"] == "OPTIONS"
        words = next((words for path, words in allowed if path.fullmatch(scope["path"])), b"")
        if not (is_question and words):
            await app(scope, receive, send)
            return
        await send({"type": "http.response.start", "status": 204, "headers": [(b"allow", words)]})
        await send({"type": "http.response.body", "body": b""})

    return layer


def health(is_ready: Callable[[], bool]) -> Any:
    """A plain application with one answer: 200 once the API listens, 503 until then."""

    async def respond(scope: Any, receive: Any, send: Any) -> None:
        del receive
        if scope["type"] != "http":
            return
        if scope["path"] != "/healthz" or scope["method"] not in ("GET", "HEAD"):
            status, body = 404, b"not found\n"
        else:
            status, body = (200, b"ok\n") if is_ready() else (503, b"starting\n")
        headers = [(b"content-type", b"text/plain"), (b"content-length", str(len(body)).encode())]
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": body if scope["method"] == "GET" else b""})

    return respond
