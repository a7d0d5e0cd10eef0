"""In front of all routes: whether the client is still trusted, and whether it asks too much at once.

A plain ASGI layer, for HTTP and WebSockets alike: a refused WebSocket gets an HTTP answer with the reason in
it. Not here: the counting (limits.py) and the certificates (trust.py).
"""

from __future__ import annotations

import json
import math
import re
from typing import TYPE_CHECKING, Any

import msgspec

from holdfast.server.problems import ApiError, as_api_error, body

if TYPE_CHECKING:
    from collections.abc import Callable

    from holdfast.server.limits import Gate
    from holdfast.server.trust import Client

_STREAM = re.compile(r"/*v1/+sandboxes/+[^/]+/+(?:events|logs|exec|forward|files)/*")
"""Every spelling that the router takes: it makes one slash of many."""
PROBLEM_HEADER = "holdfast-problem"
"""The problem once more in a header: many WebSocket clients do not show the body of a refusal."""


class Throttle:
    """Lets requests through to an application, or refuses them."""

    def __init__(self, app: Any, gate: Gate, holds: Callable[[Client | None], bool]) -> None:
        self._app, self._gate, self._holds = app, gate, holds

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] not in ("http", "websocket"):
            await self._app(scope, receive, send)
            return
        client: Client | None = (scope.get("state") or {}).get("client")
        if client is None or not self._holds(client):
            await refuse(scope, send, _not_trusted())
            return
        wait = self._gate.request(client.fingerprint)
        if wait > 0:
            await refuse(scope, send, _too_many("requests", wait))
            return
        if not _STREAM.fullmatch(scope["path"]):
            await self._app(scope, receive, send)
            return
        if not self._gate.open_stream(client.fingerprint):
            await refuse(scope, send, _too_many("open streams", 1.0))
            return
        try:
            await self._app(scope, receive, send)
        finally:
            self._gate.close_stream(client.fingerprint)


async def refuse(scope: Any, send: Any, error: Exception) -> None:
    """Answer with a problem, also where a WebSocket was asked for."""
    found = as_api_error(error)
    said = body(found)
    start = "http.response" if scope["type"] == "http" else "websocket.http.response"
    headers = {
        "content-type": "application/json",
        "content-length": str(len(said)),
        **found.headers,
    }
    if scope["type"] == "websocket":
        headers[PROBLEM_HEADER] = json.dumps(msgspec.to_builtins(found.problem))
    raw = [(key.lower().encode(), value.encode()) for key, value in headers.items()]
    await send({"type": f"{start}.start", "status": found.status, "headers": raw})
    await send({"type": f"{start}.body", "body": said})


def _too_many(what: str, wait: float) -> ApiError:
    seconds = str(max(1, math.ceil(wait)))
    return ApiError(
        429, "too-many-requests", f"too many {what} of this client at once", "Wait a little.",
        {"Retry-After": seconds},
    )  # fmt: skip


def _not_trusted() -> ApiError:
    return ApiError(
        401, "certificate-not-trusted", "the client certificate is not trusted any more",
        "Use the renewed one: `holdfast up` writes it.", {"Connection": "close"},
    )  # fmt: skip
