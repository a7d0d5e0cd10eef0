"""Notices that a client has left, also while nobody reads from it: a pod that takes no input holds it up.

What a client says last waits behind its input then; that its connection is gone does not. Not here: what ends
with it (bridge.py).
"""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING, Any

from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Mapping

_LOST = "connection-lost"
_QUIET_SECONDS, _BETWEEN_SECONDS, _PROBES = 60, 15, 4


class Sockets(WebSocketsSansIOProtocol):
    """The library's WebSockets, with the end of the connection in the state of each.

    Its pings find out about a connection from which nothing is read: there they fail.
    """

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self.app_state = {**self.app_state, _LOST: self.loop.create_future()}

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self.app_state[_LOST].set_result(None)


def lost(scope: Mapping[str, Any]) -> asyncio.Future[None] | None:
    """What is done once the client of a WebSocket is gone."""
    found: asyncio.Future[None] | None = (scope.get("state") or {}).get(_LOST)
    return found


def keep_alive(transport: asyncio.BaseTransport) -> None:
    """Let the system ask now and then whether a client that says nothing is still there."""
    about = transport.get_extra_info("socket")
    about.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in (
        ("TCP_KEEPIDLE", _QUIET_SECONDS),
        ("TCP_KEEPINTVL", _BETWEEN_SECONDS),
        ("TCP_KEEPCNT", _PROBES),
    ):
        if hasattr(socket, option):
            about.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)
