"""One WebSocket to a gateway's API, for exec and port forwarding.

The `websockets` package loads in a quarter of aiohttp's time, and `sandbox exec` needs nothing else.
"""

from __future__ import annotations

import asyncio
import socket
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode, urlsplit

from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed, ConnectionClosedError, InvalidStatus

from holdfast.client import errors
from holdfast.client.transport import set_keepalive
from holdfast.kube import mtls_context

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from websockets.asyncio.client import ClientConnection

    from holdfast.client.transport import GatewayEndpoint

_MAX_MESSAGE_BYTES = 1 << 24


class WebSocket:
    """An open WebSocket; iterate over it for the binary messages of the server until it is closed."""

    def __init__(self, connection: ClientConnection) -> None:
        self._connection = connection

    async def send(self, data: bytes) -> None:
        """Send a binary message; wait while the server does not read.

        Raises:
            ConnectionError: the WebSocket is closed.
        """
        try:
            await self._connection.send(data)
        except ConnectionClosed as error:
            raise ConnectionError(str(error)) from error

    async def __aiter__(self) -> AsyncIterator[bytes]:
        try:
            async for message in self._connection:
                if isinstance(message, bytes):
                    yield message
        except ConnectionClosedError:
            return

    @property
    def close_frame(self) -> tuple[int, str] | None:
        """Code and reason of the server's close frame; None if the connection was lost without one."""
        frame = self._connection.protocol.close_rcvd
        return (int(frame.code), frame.reason) if frame is not None else None

    async def close(self) -> None:
        """Send a close frame and wait for the server's."""
        await self._connection.close()


async def open_websocket(endpoint: GatewayEndpoint, path: str, query: Any, *, timeout: float) -> WebSocket:  # noqa: ASYNC109 (bounds two phases, not the whole call)
    """Connect and upgrade; `timeout` bounds the TCP connection and the TLS handshake, not the response.

    Raises:
        ConnectFailedError: no request was sent.
        HoldfastError: the server answered with an HTTP error.
    """
    url = urlsplit(endpoint.url)
    tls = mtls_context(endpoint.ca, endpoint.certificate, endpoint.key)
    try:
        connected = await asyncio.to_thread(socket.create_connection, (url.hostname, url.port), timeout)
        connected.setblocking(False)
        set_keepalive(connected)
        connection = await connect(
            f"wss://{url.netloc}{path}?{urlencode(query or ())}",
            sock=connected,
            ssl=tls,
            ssl_handshake_timeout=timeout,
            compression=None,
            # The server answers only when the stream into the pod is open, which takes long on a busy node.
            open_timeout=None,
            # A server that waits for a slow program reads no pings; TCP keepalive detects a lost peer.
            ping_interval=None,
            max_size=_MAX_MESSAGE_BYTES,
        )
    except OSError as error:
        # No request was sent: after that, `websockets` raises its own errors and never OSError.
        raise errors.ConnectFailedError(error) from error
    except InvalidStatus as error:
        response = error.response
        raise errors.error_from_response(
            response.status_code,
            bytes(response.body),
            response.headers,
            operation=f"GET {path}",
            gateway=endpoint.gateway,
        ) from None
    return WebSocket(connection)
