"""Proxy between the WebSocket of a client and one into a pod.

Each direction awaits its write before the next read, so nothing accumulates. When one side ends, the other is
closed. Close code 1000 is sent only if the pod ended the stream: an interrupted stream must not look
complete.

A client that disconnects while the pod does not read its input is detected through the protocol class.
"""

from __future__ import annotations

import asyncio
import socket
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import aiohttp
import msgspec
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol

from holdfast.api import CONNECTION_LOST, Channel, encode_frame
from holdfast.server.streams.spdy import SpdyExecStream

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from litestar import WebSocket


_DISCONNECTED_KEY = "connection-lost"
_KEEPALIVE_IDLE_SECONDS, _KEEPALIVE_INTERVAL_SECONDS, _KEEPALIVE_PROBES = 60, 15, 4


class DisconnectAwareProtocol(WebSocketsSansIOProtocol):
    """WebSocket protocol that publishes the loss of the connection in the state of each request.

    Its pings detect lost connections even while nothing is read from them.
    """

    # uvicorn stops reading from the client while a message waits in its queue. A proxy that is blocked by
    # the pod takes no message, so that `receive` does not report a disconnect.
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self.app_state = {**self.app_state, _DISCONNECTED_KEY: self.loop.create_future()}

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self.app_state[_DISCONNECTED_KEY].set_result(None)


def disconnect_future(scope: Mapping[str, Any]) -> asyncio.Future[None]:
    """Return the future that completes when the client of a WebSocket disconnects."""
    future = (scope.get("state") or {}).get(_DISCONNECTED_KEY)
    return future or asyncio.get_running_loop().create_future()


def enable_keepalive(transport: asyncio.BaseTransport) -> None:
    """Enable TCP keepalive, which detects clients that vanished silently."""
    client_socket = transport.get_extra_info("socket")
    client_socket.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    client_socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, _KEEPALIVE_IDLE_SECONDS)
    client_socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, _KEEPALIVE_INTERVAL_SECONDS)
    client_socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, _KEEPALIVE_PROBES)


PodStream = aiohttp.ClientWebSocketResponse[bool] | SpdyExecStream

CLOSE_NORMAL, CLOSE_UNSUPPORTED_DATA, CLOSE_INTERNAL_ERROR = 1000, 1003, 1011
# A control frame has at most 125 bytes (RFC 6455), and the close code takes 2 of them.
_MAX_REASON_BYTES = 120
_CLOSE_TIMEOUT = 5.0
_CLIENT_CHANNELS = (Channel.STDIN, Channel.RESIZE, Channel.CLOSE)
_CONNECTION_LOST_STATUS = {
    "kind": "Status",
    "apiVersion": "v1",
    "status": "Failure",
    "reason": CONNECTION_LOST,
    "message": "the connection to the pod was lost before the command ended",
    "code": 500,
}


class StreamClosed(Exception):  # noqa: N818 (a normal end, not an error)
    """The stream ended; carries the close code and reason for the client. Code 0: the client is gone."""

    def __init__(self, code: int, reason: str = "") -> None:
        super().__init__(reason)
        self.code, self.reason = code, reason


_CONNECTION_LOST_CLOSE = StreamClosed(CLOSE_INTERNAL_ERROR, "the connection to the pod was lost")


async def proxy_exec(socket: WebSocket[Any, Any, Any], pod_stream: PodStream, *, stdin: bool) -> None:
    """Relay the frames of an exec; the client always receives a status frame last."""
    status_seen = False

    async def to_client(data: bytes) -> None:
        nonlocal status_seen
        if len(data) > 1 or data[:1] == bytes((Channel.CLOSE,)):
            status_seen = status_seen or data[0] == Channel.STATUS
            await _send_frame(socket, data)

    async def to_pod(data: bytes) -> None:
        if not data or data[0] not in _CLIENT_CHANNELS:
            raise StreamClosed(CLOSE_UNSUPPORTED_DATA, "clients may send on the channels 0, 4 and 255 only")
        if data[0] == Channel.RESIZE or stdin:
            await pod_stream.send_bytes(data)

    closed = await _relay_frames(socket, pod_stream, to_client, to_pod)
    with suppress(OSError):  # the client may have disconnected
        if closed.code in (CLOSE_NORMAL, CLOSE_INTERNAL_ERROR) and not status_seen:
            await _send_frame(
                socket, encode_frame(Channel.STATUS, msgspec.json.encode(_CONNECTION_LOST_STATUS))
            )
            closed = _CONNECTION_LOST_CLOSE
        elif closed.code == CLOSE_INTERNAL_ERROR:  # the status frame was sent before
            closed = StreamClosed(CLOSE_NORMAL)
        await _close_socket(socket, closed)


async def proxy_port_forward(socket: WebSocket[Any, Any, Any], pod_stream: PodStream) -> None:
    """Relay raw bytes of the client to and from the channels of the pod: 0 is data, 1 is errors."""
    started = [False, False]

    async def to_client(data: bytes) -> None:
        channel = data[0] if data else 255
        if channel > 1:
            return
        if not started[channel]:
            started[channel] = True  # each channel begins with the port number
            data = data[:1] + data[3:]
        if len(data) > 1 and channel == 1:
            raise StreamClosed(
                CLOSE_INTERNAL_ERROR, _port_forward_reason(data[1:].decode("utf-8", "replace"))
            )
        if len(data) > 1:
            await _send_frame(socket, data[1:])

    async def to_pod(data: bytes) -> None:
        if data:
            await pod_stream.send_bytes(b"\0" + data)

    closed = await _relay_frames(socket, pod_stream, to_client, to_pod)
    with suppress(OSError):
        await _close_socket(socket, closed)


def _port_forward_reason(message: str) -> str:
    """Shorten an error message to the size of a close frame."""
    if "connection refused" in message:
        return "no process in the sandbox listens on that port"
    return message.rpartition(": ")[2] if len(message) > _MAX_REASON_BYTES else message


async def _relay_frames(
    socket: WebSocket[Any, Any, Any],
    pod_stream: PodStream,
    to_client: Callable[[bytes], Awaitable[None]],
    to_pod: Callable[[bytes], Awaitable[None]],
) -> StreamClosed:
    """Relay frames until one side ends, and return how to close the client's side."""
    tasks = [
        asyncio.ensure_future(_relay_from_pod(pod_stream, to_client)),
        asyncio.ensure_future(_relay_from_client(socket, to_pod)),
    ]
    disconnected = disconnect_future(socket.scope)
    try:
        await asyncio.wait([*tasks, disconnected], return_when=asyncio.FIRST_COMPLETED)
        if not tasks[0].done() and _is_rejected_by_pod(tasks[1]):
            # A pod that accepts no more input may have sent a message that is not read yet.
            await asyncio.wait(
                [tasks[0], disconnected], timeout=_CLOSE_TIMEOUT, return_when=asyncio.FIRST_COMPLETED
            )
        # The pod takes precedence: its last frames may arrive together with the client's close.
        finished = next((task for task in tasks if task.done()), None)
        error = StreamClosed(0) if finished is None else finished.exception()
    finally:
        # The tasks end before `close`, which reads from the same WebSocket.
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        # A pod that does not read does not answer the close frame either; then its connection is cut.
        with suppress(TimeoutError):
            async with asyncio.timeout(_CLOSE_TIMEOUT):
                await pod_stream.close()
    if isinstance(error, StreamClosed):
        return error
    if error is None or isinstance(error, aiohttp.ClientError | OSError):
        return _CONNECTION_LOST_CLOSE
    raise error


def _is_rejected_by_pod(sending: asyncio.Future[None]) -> bool:
    """Return whether sending to the pod failed."""
    return sending.done() and isinstance(sending.exception(), aiohttp.ClientError | OSError)


async def _relay_from_pod(pod_stream: PodStream, to_client: Callable[[bytes], Awaitable[None]]) -> None:
    while True:
        message = await pod_stream.receive()
        if message.type is aiohttp.WSMsgType.CLOSE and message.data == CLOSE_NORMAL:
            raise StreamClosed(CLOSE_NORMAL)
        if message.type is not aiohttp.WSMsgType.BINARY:
            return
        await to_client(message.data)


async def _relay_from_client(
    socket: WebSocket[Any, Any, Any], to_pod: Callable[[bytes], Awaitable[None]]
) -> None:
    while True:
        event = await socket.receive()
        if event["type"] != "websocket.receive":
            raise StreamClosed(0)
        data = event.get("bytes")
        if data is None:
            raise StreamClosed(CLOSE_UNSUPPORTED_DATA, "frames must be binary")
        await to_pod(data)


async def _send_frame(socket: WebSocket[Any, Any, Any], data: bytes) -> None:
    await socket.send({"type": "websocket.send", "bytes": data, "text": None})


async def _close_socket(socket: WebSocket[Any, Any, Any], closed: StreamClosed) -> None:
    """Close the client's side, unless the client is gone (code 0)."""
    if closed.code:
        reason = closed.reason.replace("\n", " ").encode()[:_MAX_REASON_BYTES].decode("utf-8", "ignore")
        await socket.close(code=closed.code, reason=reason)
