"""The API's routes, and the health answer beside them.

Not here: listening and TLS (serve.py). Whoever gets as far as a route has shown a client certificate.
"""

# No `from __future__ import annotations`: the framework reads the handlers' annotations as they stand.
from collections.abc import Callable
from typing import Any

from litestar import Litestar, get
from litestar.openapi.config import OpenAPIConfig
from litestar.openapi.plugins import JsonRenderPlugin

from holdfast import __version__
from holdfast.server.models import GatewayInfo


def api(name: str) -> Litestar:
    """The application that clients talk to."""

    @get("/v1/gateway", summary="The gateway behind this API", sync_to_thread=False)
    def gateway() -> GatewayInfo:
        return GatewayInfo(name=name, version=__version__)

    return Litestar(
        route_handlers=[gateway],
        openapi_config=OpenAPIConfig(
            title="holdfast gateway", version=__version__, render_plugins=[JsonRenderPlugin()]
        ),
    )


def health(is_ready: Callable[[], bool]) -> Any:
    """A plain application with one answer: 200 once the API listens, 503 until then."""

    async def answer(scope: Any, receive: Any, send: Any) -> None:
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

    return answer
