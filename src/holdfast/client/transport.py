"""HTTPS connection to a gateway's API: requests with retries, streams and WebSockets.

Requests that are safe to repeat are retried. A stream or WebSocket is opened again only while nothing was
transferred; after that, its end is an error for the caller. After a failed connection the endpoint is
resolved again: ports, tunnels and certificates change.
"""

from __future__ import annotations

import asyncio
import os
import socket
import ssl
from collections.abc import Callable
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar
from urllib.parse import urlsplit
from weakref import WeakSet

import msgspec

from holdfast.client import errors
from holdfast.errors import (
    ApiRefusedError,
    ApiRequestRejectedError,
    HoldfastError,
    PoolNotFoundError,
    ResponseLostError,
    SandboxMaybeDeletedError,
    SandboxNotFoundError,
    TemplateNotFoundError,
)
from holdfast.kube import mtls_context
from holdfast.retry import Budget, Policy, current_deadline, exponential

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Iterator

    import aiohttp

    from holdfast.client.websocket import WebSocket
    from holdfast.retry import RetryListener


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewayEndpoint:
    """Address and client certificate of a gateway's API.

    Attributes:
        gateway: name of the gateway.
        url: base URL.
        ca: CA certificate, PEM.
        certificate: client certificate, PEM.
        key: private key, PEM.
    """

    gateway: str
    url: str
    ca: bytes = field(repr=False)
    certificate: bytes = field(repr=False)
    key: bytes = field(repr=False)


EndpointResolver: TypeAlias = Callable[[], GatewayEndpoint]
"""Returns the current endpoint; called before the first request and after a failed connection. May block."""


T = TypeVar("T")

_ATTEMPTS = 4
_CONNECT_TIMEOUT = 5.0
_RESPONSE_TIMEOUT = 30.0
_CLOSE_PROBE_TIMEOUT = 1.0
_MAX_PROBLEM_BYTES = 1 << 16
_FIRST_ERROR_STATUS = 400
_KEEPALIVE_OPTIONS = {"TCP_KEEPIDLE": 20, "TCP_KEEPINTVL": 5, "TCP_KEEPCNT": 4}


class Transport:
    """Client of one gateway's API on one event loop. Connects on the first request.

    Attributes:
        on_retry: called for every retried request and reopened watch.
    """

    def __init__(self, resolve_endpoint: EndpointResolver, *, on_retry: RetryListener | None = None) -> None:
        self._resolve_endpoint = resolve_endpoint
        self.on_retry = on_retry
        self._endpoint: GatewayEndpoint | None = None
        self._session: aiohttp.ClientSession | None = None
        self._lock = asyncio.Lock()
        _TRANSPORTS.add(self)
        policy = Policy(
            attempts=_ATTEMPTS,
            backoff=exponential(0.2, cap=5.0),
            retry_on=errors.is_retryable,
            retry_after=errors.retry_after_seconds,
            budget=Budget(10.0),
            on_retry=on_retry,
        )
        self._request_policy = policy
        self._open_policy = policy.replace(retry_on=errors.is_retryable_unsent)

    @property
    def gateway(self) -> str:
        """Name of the gateway; empty before the first request."""
        return self._endpoint.gateway if self._endpoint is not None else ""

    async def call(self, method: str, path: str, response_type: type[T], *, query: Any = None) -> T:
        """Send a request that is safe to repeat, and decode its response."""
        return (await self.call_with_status(method, path, response_type, query=query))[1]

    async def call_with_status(
        self,
        method: str,
        path: str,
        response_type: type[T],
        *,
        query: Any = None,
        body: msgspec.Struct | None = None,
    ) -> tuple[int, T]:
        """Send a request like `call`, with an optional body, and return the HTTP status too."""
        headers = {"Content-Type": "application/json"} if body is not None else None
        data = msgspec.json.encode(body) if body is not None else None
        is_response_lost = False

        async def once(endpoint: GatewayEndpoint) -> tuple[int, bytes]:
            async with self._get_session(endpoint).request(
                method, path, params=query, data=data, headers=headers, timeout=_response_timeout()
            ) as response:
                return response.status, await response.read()

        async def attempt() -> tuple[int, bytes]:
            nonlocal is_response_lost
            try:
                return await self._attempt(once)
            except SandboxNotFoundError as error:
                # An earlier attempt whose response was lost may itself have deleted the sandbox.
                if is_response_lost:
                    raise SandboxMaybeDeletedError(error.message, hint=error.hint) from error
                raise
            except (TemplateNotFoundError, PoolNotFoundError) as error:
                error.maybe_deleted = is_response_lost
                raise
            except ResponseLostError:
                is_response_lost = True
                raise

        status, content = await self._request_policy.replace(operation=f"{method} {path}").acall(attempt)
        return status, decode_response(content, response_type)

    @asynccontextmanager
    async def stream(
        self,
        method: str,
        path: str,
        *,
        query: Any = None,
        headers: dict[str, str] | None = None,
        body: Callable[[], Any] | None = None,
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        """Send a request with a streamed body or response.

        Args:
            method: HTTP method.
            path: path below the base URL.
            query: query parameters.
            headers: request headers.
            body: returns an iterator over the chunks of the request body, a tar archive.
        """
        if body is not None:
            headers = {"Content-Type": "application/x-tar", **(headers or {})}

        async def once(endpoint: GatewayEndpoint) -> aiohttp.ClientResponse:
            data = body() if body is not None else None
            return await self._get_session(endpoint).request(
                method, path, params=query, data=data, headers=headers, timeout=_stream_timeout()
            )

        # A GET changes nothing and may be repeated. An upload is repeated only if nothing has started.
        policy = self._request_policy if method == "GET" else self._open_policy
        response = await policy.replace(operation=f"{method} {path}").acall(self._attempt, once)
        try:
            with self._translate_connection_errors():
                yield response
        finally:
            response.close()

    @asynccontextmanager
    async def websocket(self, path: str, *, query: Any = None) -> AsyncIterator[WebSocket]:
        """Open a WebSocket; retries end once it is open."""

        async def once(endpoint: GatewayEndpoint) -> WebSocket:
            from holdfast.client.websocket import open_websocket

            return await open_websocket(endpoint, path, query, timeout=_CONNECT_TIMEOUT)

        opened = await self._open_policy.replace(operation=f"open {path}").acall(self._attempt, once)
        try:
            with self._translate_connection_errors():
                yield opened
        finally:
            await opened.close()

    @contextmanager
    def _translate_connection_errors(self) -> Iterator[None]:
        """Translate errors of the connection; errors of the code in the block pass unchanged."""
        try:
            yield
        except errors.connection_errors() as error:
            if not errors.is_connection_error(error):
                raise
            raise self._to_error(error) from error

    @property
    def is_open(self) -> bool:
        """Whether a connection is open."""
        return self._session is not None

    async def close(self) -> None:
        """Close all connections; the next request opens new ones."""
        session, self._session = self._session, None
        if session is not None:
            await session.close()

    async def _attempt(self, send: Callable[[GatewayEndpoint], Awaitable[T]]) -> T:
        """Send once; if the certificates were rejected and have been renewed, send again immediately."""
        # Outside the block: an OSError of the resolver is not an error of the connection.
        endpoint = await self._get_endpoint()
        try:
            return await send(endpoint)
        except HoldfastError as error:
            if not isinstance(error, ApiRefusedError) or not await self._refresh_endpoint():
                raise
        except errors.connection_errors() as error:
            failure = await self._diagnose(error)
            changed = await self._refresh_endpoint()
            if not (changed and isinstance(failure, ApiRefusedError)):
                raise failure from error
        try:
            return await send(await self._get_endpoint())
        except errors.connection_errors() as error:
            raise self._to_error(error) from error

    async def _diagnose(self, error: Exception) -> HoldfastError:
        """Translate an error; a server that closes every connection with this certificate rejects it."""
        endpoint = self._endpoint
        if endpoint is not None and errors.is_disconnect(error) and await closes_after_handshake(endpoint):
            return errors.rejected_certificate_error(endpoint, error)
        return self._to_error(error)

    def _to_error(self, error: Exception) -> HoldfastError:
        if isinstance(error, HoldfastError):
            return error
        assert self._endpoint is not None  # noqa: S101 (a session needs it)
        return errors.error_from_exception(error, self._endpoint)

    def _get_session(self, endpoint: GatewayEndpoint) -> aiohttp.ClientSession:
        # No await: concurrent first requests must share one session, because a second one is never closed.
        if self._session is None:
            self._session = _new_session(endpoint)
        return self._session

    async def _get_endpoint(self) -> GatewayEndpoint:
        async with self._lock:
            if self._endpoint is None:
                self._endpoint = await self._resolve()
            return self._endpoint

    async def _resolve(self) -> GatewayEndpoint:
        try:
            return await asyncio.to_thread(self._resolve_endpoint)
        except OSError as error:  # some errors of holdfast are subclasses
            failure = None if isinstance(error, HoldfastError) else errors.full_disk_error(error)
            if failure is None:
                raise
            raise failure from error

    async def _refresh_endpoint(self) -> bool:
        """Resolve the endpoint again; return whether it has changed."""
        async with self._lock:
            endpoint = await self._resolve()
            if endpoint == self._endpoint:
                return False
            self._endpoint = endpoint
            # Pooled connections lead to the old address or were opened with the old certificate.
            await self.close()
            return True


_TRANSPORTS: WeakSet[Transport] = WeakSet()


def _forget_inherited_connections() -> None:
    """In a forked child: drop all connections without closing them, because the parent still uses them."""
    for transport in _TRANSPORTS:
        if transport._session is not None and transport._session.connector is not None:  # noqa: SLF001
            # Otherwise the destructor of the connector would end the TLS connections of the parent.
            transport._session.connector._closed = True  # noqa: SLF001
        transport._session, transport._lock = None, asyncio.Lock()  # noqa: SLF001


os.register_at_fork(after_in_child=_forget_inherited_connections)


async def closes_after_handshake(endpoint: GatewayEndpoint) -> bool:
    """Whether the server closes a connection before a request: with TLS 1.3, it rejects a certificate so."""
    address = urlsplit(endpoint.url)
    tls = mtls_context(endpoint.ca, endpoint.certificate, endpoint.key)
    try:
        async with asyncio.timeout(_CLOSE_PROBE_TIMEOUT):
            reader, writer = await asyncio.open_connection(address.hostname, address.port, ssl=tls)
            try:
                # With TLS 1.3, the client finishes the handshake before the server verifies its certificate.
                return not await reader.read(1)
            finally:
                writer.close()
    except ssl.SSLError:
        return True
    except OSError:  # includes a timeout: the server keeps the connection and waits for a request
        return False


def decode_response(content: bytes, model: type[T]) -> T:
    """Decode a response body.

    Raises:
        ApiRequestRejectedError: the body does not match the model.
    """
    try:
        return msgspec.json.decode(content, type=model)
    except msgspec.MsgspecError as error:
        raise ApiRequestRejectedError(
            f"the gateway's API did not return a {model.__name__}: {error}",
            hint="Gateway and client may differ in version: update the older one.",
        ) from error


def _new_session(endpoint: GatewayEndpoint) -> aiohttp.ClientSession:
    import aiohttp

    tls = mtls_context(endpoint.ca, endpoint.certificate, endpoint.key)
    session = aiohttp.ClientSession(
        base_url=endpoint.url,
        # No limit: each stream occupies a connection for as long as it is open.
        connector=aiohttp.TCPConnector(ssl=tls, limit=0, socket_factory=_keepalive_socket),
        cookie_jar=aiohttp.DummyCookieJar(),
        raise_for_status=partial(_raise_for_status, endpoint.gateway),
        # Gateways are reached on this machine or through a tunnel, which a proxy could not use.
        trust_env=False,
    )
    # aiohttp would silently repeat a DELETE on a reused connection; `call` must know of the first one.
    session._retry_connection = False  # noqa: SLF001
    return session


def set_keepalive(connection: socket.socket) -> None:
    """Let the kernel detect a peer that disappeared without closing the connection."""
    for name, value in _KEEPALIVE_OPTIONS.items():
        if hasattr(socket, name):
            connection.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)


def _keepalive_socket(address: Any) -> socket.socket:
    connection = socket.socket(*address[:3])
    set_keepalive(connection)
    return connection


async def _raise_for_status(gateway: str, response: aiohttp.ClientResponse) -> None:
    """Translate error responses; aiohttp calls this for every response."""
    if response.status < _FIRST_ERROR_STATUS:
        return
    body = await response.content.read(_MAX_PROBLEM_BYTES)
    operation = f"{response.method} {response.url.path}"
    raise errors.error_from_response(
        response.status, body, response.headers, operation=operation, gateway=gateway
    )


def _response_timeout() -> aiohttp.ClientTimeout:
    import aiohttp

    deadline = current_deadline()
    total = deadline.clip(_RESPONSE_TIMEOUT) if deadline is not None else _RESPONSE_TIMEOUT
    # aiohttp takes 0 as no timeout.
    return aiohttp.ClientTimeout(total=max(total, 0.001), sock_connect=_CONNECT_TIMEOUT)


def _stream_timeout() -> aiohttp.ClientTimeout:
    import aiohttp

    return aiohttp.ClientTimeout(total=None, sock_connect=_CONNECT_TIMEOUT)
