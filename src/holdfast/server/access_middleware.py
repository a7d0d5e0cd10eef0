"""ASGI middleware that checks client certificates and applies the rate limits of each client.

A client is one certificate. A rejected WebSocket gets an HTTP response with the problem.
"""

from __future__ import annotations

import math
import re
import time
from typing import TYPE_CHECKING, Any

import msgspec

from holdfast.server.errors import ApiError, as_api_error, problem_body

if TYPE_CHECKING:
    from collections.abc import Callable

    from holdfast.server.tls import PeerIdentity


_MAX_TRACKED_CLIENTS = 1024


class ClientLimits(msgspec.Struct, frozen=True, kw_only=True):
    """Limits of one client."""

    requests_per_second: float = 50.0
    burst: int = 100
    """burst size of the token bucket"""
    streams: int = 64
    """maximum number of open exec, port-forward, log, event and file streams"""


class _ClientUsage:
    __slots__ = ("seen", "streams", "tokens")

    def __init__(self, tokens: float, seen: float) -> None:
        self.tokens, self.seen, self.streams = tokens, seen, 0


class RateLimiter:
    """Token bucket and stream counter per client. Not thread-safe."""

    def __init__(self, limits: ClientLimits, clock: Callable[[], float] = time.monotonic) -> None:
        self._limits, self._clock = limits, clock
        self._clients: dict[str, _ClientUsage] = {}

    def acquire_request(self, client: str) -> float:
        """Consume one request.

        Returns:
            0 if the request is allowed, else the seconds until the next one is.
        """
        usage = self._client_usage(client)
        if usage.tokens >= 1.0:
            usage.tokens -= 1.0
            return 0.0
        return (1.0 - usage.tokens) / self._limits.requests_per_second

    def open_stream(self, client: str) -> bool:
        """Reserve a stream slot; release it with `close_stream`.

        Returns:
            False if the client has no free slot.
        """
        usage = self._client_usage(client)
        if usage.streams >= self._limits.streams:
            return False
        usage.streams += 1
        return True

    def close_stream(self, client: str) -> None:
        """Release a stream slot."""
        usage = self._clients.get(client)
        if usage is not None and usage.streams > 0:
            usage.streams -= 1

    def _client_usage(self, client: str) -> _ClientUsage:
        now, most = self._clock(), float(self._limits.burst)
        usage = self._clients.get(client)
        if usage is None:
            self._evict_idle_clients(now)
            usage = self._clients[client] = _ClientUsage(most, now)
        usage.tokens = min(most, usage.tokens + (now - usage.seen) * self._limits.requests_per_second)
        usage.seen = now
        return usage

    def _evict_idle_clients(self, now: float) -> None:
        """Remove clients without open streams whose token bucket is full again."""
        if len(self._clients) < _MAX_TRACKED_CLIENTS:
            return
        # A full bucket equals a new one, so that eviction grants no extra requests.
        refill = self._limits.burst / self._limits.requests_per_second
        idle = [
            key for key, usage in self._clients.items() if not usage.streams and now - usage.seen >= refill
        ]
        for key in idle:
            del self._clients[key]


_STREAM_PATH = re.compile(
    r"/*v1/+(?:sandboxes/+[^/]+/+(?:events|logs|exec|forward|files)|pools/+[^/]+/+events|watch/+sandboxes)/*"
)
"""Every spelling that the router accepts: it collapses repeated slashes."""


class AccessMiddleware:
    """Pass requests of trusted clients within their limits to the application, and reject all others."""

    def __init__(
        self, app: Any, limiter: RateLimiter, is_trusted: Callable[[PeerIdentity | None], bool]
    ) -> None:
        self._app, self._limiter, self._is_trusted = app, limiter, is_trusted

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        client: PeerIdentity | None = (scope.get("state") or {}).get("client")
        # For every request, not only in the handshake: the CA may be replaced while a connection is open.
        if client is None or not self._is_trusted(client):
            await send_problem(scope, send, _certificate_not_trusted())
            return
        wait = self._limiter.acquire_request(client.fingerprint)
        if wait > 0:
            await send_problem(scope, send, _too_many_requests("requests", wait))
            return
        if not _STREAM_PATH.fullmatch(scope["path"]):
            await self._app(scope, receive, send)
            return
        if not self._limiter.open_stream(client.fingerprint):
            await send_problem(scope, send, _too_many_requests("open streams", 1.0))
            return
        try:
            await self._app(scope, receive, send)
        finally:
            # Runs on disconnect and cancellation too: a leaked slot would be lost until the server restarts.
            self._limiter.close_stream(client.fingerprint)


async def send_problem(scope: Any, send: Any, error: Exception) -> None:
    """Send an error as a problem response, for HTTP requests and WebSocket handshakes."""
    api_error = as_api_error(error)
    body = problem_body(api_error)
    start = "http.response" if scope["type"] == "http" else "websocket.http.response"
    headers = {
        "content-type": "application/json",
        "content-length": str(len(body)),
        **api_error.headers,
    }
    raw = [(key.lower().encode(), value.encode()) for key, value in headers.items()]
    await send({"type": f"{start}.start", "status": api_error.status, "headers": raw})
    await send({"type": f"{start}.body", "body": body})


def _too_many_requests(resource: str, retry_after: float) -> ApiError:
    seconds = str(max(1, math.ceil(retry_after)))
    return ApiError(
        429, "too-many-requests", f"too many {resource} of this client",
        "Wait for the seconds in Retry-After, then retry.",
        {"Retry-After": seconds},
    )  # fmt: skip


def _certificate_not_trusted() -> ApiError:
    return ApiError(
        401, "certificate-not-trusted", "the client certificate is no longer trusted",
        "Renew this machine's client certificate: repeat `up` for this gateway.", {"Connection": "close"},
    )  # fmt: skip
