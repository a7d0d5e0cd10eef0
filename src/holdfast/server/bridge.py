"""Joins a client's WebSocket with one into a pod: frames both ways, as fast as the slower side takes them.

Each direction awaits its write before it reads on, so that nothing piles up here. Whichever side ends, the
other one is ended: with 1000 only where the pod's side said its end, for what is cut must not look whole.
Not here: opening either side.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import aiohttp
import msgspec

from holdfast.sandbox.wire import CONNECTION_LOST, Channel, frame
from holdfast.server.leaving import lost
from holdfast.server.patient_stream import PatientStream

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from litestar import WebSocket

Upstream = aiohttp.ClientWebSocketResponse[bool] | PatientStream

NORMAL, PROTOCOL_ERROR, NOT_TAKEN, BROKEN = 1000, 1002, 1003, 1011
_LONGEST_REASON = 120
_GOOD_BYE_SECONDS = 5.0
_MAY_SEND = (Channel.STDIN, Channel.RESIZE, Channel.CLOSE)
_LOST = {
    "kind": "Status",
    "apiVersion": "v1",
    "status": "Failure",
    "reason": CONNECTION_LOST,
    "message": "the connection to the pod was lost before the command ended",
    "code": 500,
}


class Ended(Exception):  # noqa: N818 (an end, not an error)
    """A bridge is over, with the close code and words for the client."""

    def __init__(self, code: int, reason: str = "") -> None:
        super().__init__(reason)
        self.code, self.reason = code, reason


_CUT = Ended(BROKEN, "the connection to the pod was lost")


async def exec_bridge(socket: WebSocket[Any, Any, Any], upstream: Upstream, *, stdin: bool) -> None:
    """Frames of an exec, as they are; the last one is always a status."""
    status_seen = False

    async def to_client(data: bytes) -> None:
        nonlocal status_seen
        if len(data) > 1 or data[:1] == bytes((Channel.CLOSE,)):
            status_seen = status_seen or data[0] == Channel.STATUS
            await _send(socket, data)

    async def to_pod(data: bytes) -> None:
        if not data or data[0] not in _MAY_SEND:
            raise Ended(NOT_TAKEN, "clients send on the channels 0, 4 and 255 only")
        if data[0] == Channel.RESIZE or stdin:
            await upstream.send_bytes(data)

    ended = await _run(socket, upstream, to_client, to_pod)
    with suppress(OSError):  # a client that has left hears nothing more
        if ended.code in (NORMAL, BROKEN) and not status_seen:
            await _send(socket, frame(Channel.STATUS, msgspec.json.encode(_LOST)))
            ended = _CUT
        elif ended.code == BROKEN:  # all was said before
            ended = Ended(NORMAL)
        await _close(socket, ended)


async def forward_bridge(socket: WebSocket[Any, Any, Any], upstream: Upstream) -> None:
    """Plain bytes on the client's side, channels on the pod's: 0 is the data, 1 is what went wrong."""
    greeted = [False, False]

    async def to_client(data: bytes) -> None:
        channel = data[0] if data else 255
        if channel > 1:
            return
        if not greeted[channel]:
            greeted[channel] = True  # each channel begins with the port's number
            data = data[:1] + data[3:]
        if len(data) > 1 and channel == 1:
            raise Ended(BROKEN, _forward_words(data[1:].decode("utf-8", "replace")))
        if len(data) > 1:
            await _send(socket, data[1:])

    async def to_pod(data: bytes) -> None:
        if data:
            await upstream.send_bytes(b"\0" + data)

    ended = await _run(socket, upstream, to_client, to_pod)
    with suppress(OSError):
        await _close(socket, ended)


def _forward_words(said: str) -> str:
    """What went wrong, in the few words that a close frame has room for."""
    if "connection refused" in said:
        return "nothing listens on that port in the sandbox"
    return said.rpartition(": ")[2] if len(said) > _LONGEST_REASON else said


async def _run(
    socket: WebSocket[Any, Any, Any],
    upstream: Upstream,
    to_client: Callable[[bytes], Awaitable[None]],
    to_pod: Callable[[bytes], Awaitable[None]],
) -> Ended:
    """Carry frames until one side ends; says how the client's side is to be closed."""
    tasks = [
        asyncio.ensure_future(_from_pod(upstream, to_client)),
        asyncio.ensure_future(_from_client(socket, to_pod)),
    ]
    left = lost(socket.scope)
    try:
        ends = tasks if left is None else [*tasks, left]
        await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        if not tasks[0].done() and _is_closed_to(tasks[1]):
            # A pod that takes no more may have said something before that is not read yet.
            ends = [tasks[0]] if left is None else [tasks[0], left]
            await asyncio.wait(ends, timeout=_GOOD_BYE_SECONDS, return_when=asyncio.FIRST_COMPLETED)
        # The pod's side counts first: its last words may be there together with the client's end.
        over = next((task for task in tasks if task.done()), None)
        error = Ended(0) if over is None else over.exception()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        # A pod that takes no input takes no good-bye either; given up, its connection is cut.
        with suppress(TimeoutError):
            async with asyncio.timeout(_GOOD_BYE_SECONDS):
                await upstream.close()
    if isinstance(error, Ended):
        return error
    if isinstance(error, aiohttp.ClientError | OSError):
        return _CUT
    if error is not None:
        raise error
    return _CUT


def _is_closed_to(sending: asyncio.Future[None]) -> bool:
    """Whether the pod's side took no more of what a client sent."""
    return sending.done() and isinstance(sending.exception(), aiohttp.ClientError | OSError)


async def _from_pod(upstream: Upstream, to_client: Callable[[bytes], Awaitable[None]]) -> None:
    while True:
        message = await upstream.receive()
        if message.type is aiohttp.WSMsgType.CLOSE and message.data == NORMAL:
            raise Ended(NORMAL)
        if message.type is not aiohttp.WSMsgType.BINARY:
            return
        await to_client(message.data)


async def _from_client(socket: WebSocket[Any, Any, Any], to_pod: Callable[[bytes], Awaitable[None]]) -> None:
    while True:
        event = await socket.receive()
        if event["type"] != "websocket.receive":
            raise Ended(0)
        data = event.get("bytes")
        if data is None:
            raise Ended(NOT_TAKEN, "frames must be binary")
        await to_pod(data)


async def _send(socket: WebSocket[Any, Any, Any], data: bytes) -> None:
    await socket.send({"type": "websocket.send", "bytes": data, "text": None})


async def _close(socket: WebSocket[Any, Any, Any], ended: Ended) -> None:
    """Say good-bye, unless the client has left (code 0)."""
    if ended.code:
        reason = ended.reason.replace("\n", " ").encode()[:_LONGEST_REASON].decode("utf-8", "ignore")
        await socket.close(code=ended.code, reason=reason)
