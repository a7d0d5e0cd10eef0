"""The WebSockets: a command in a sandbox, and a connection to one of its ports.

What can be refused is refused with an HTTP answer, before the WebSocket is accepted. Not here: carrying the
frames (bridge.py).
"""

# No `from __future__ import annotations`: the framework reads the handlers' annotations as they stand.
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from typing import Any

from litestar import WebSocket, websocket

from holdfast.server import bridge, pods
from holdfast.server.cluster import FORWARD_PROTOCOL
from holdfast.server.problems import bad_request
from holdfast.server.service import Service
from holdfast.server.throttle import refuse

Socket = WebSocket[Any, Any, Any]
_MOST_WORDS = 4096
_HIGHEST_PORT = 65535


@websocket("/v1/sandboxes/{name:str}/exec")
async def execute(socket: Socket, service: Service, name: str) -> None:
    """Run a command; frames as in Kubernetes' own protocol."""
    async with AsyncExitStack() as using:
        upstream = await _joined(socket, lambda: _exec(socket, service, name, using))
        if upstream is not None:
            await bridge.exec_bridge(socket, upstream, stdin=_flag(socket, "stdin"))


@websocket("/v1/sandboxes/{name:str}/forward")
async def forward(socket: Socket, service: Service, name: str) -> None:
    """One connection to a port in the sandbox; plain bytes both ways."""
    async with AsyncExitStack() as using:
        upstream = await _joined(socket, lambda: _forward(socket, service, name, using))
        if upstream is not None:
            await bridge.forward_bridge(socket, upstream)


async def _joined(
    socket: Socket, opening: Callable[[], Awaitable[bridge.Upstream]]
) -> bridge.Upstream | None:
    """The pod's side first, then yes to the client; or a refusal, and nothing is left open."""
    try:
        upstream = await opening()
    except Exception as error:  # noqa: BLE001 (whatever it is, the client gets an answer)
        await refuse(socket.scope, socket.send, error)
        return None
    try:
        await socket.accept()
    except BaseException:
        await upstream.close()
        raise
    return upstream


async def _exec(socket: Socket, service: Service, name: str, using: AsyncExitStack) -> bridge.Upstream:
    words = socket.query_params.getall("command", [])
    if not words or len(words) > _MOST_WORDS or any("\0" in word for word in words):
        raise bad_request("no-command", "command: give it, one `command` for each word")
    tty, stdin = _flag(socket, "tty"), _flag(socket, "stdin")
    place = await pods.running(service, name, socket.query_params.get("container"))
    await using.enter_async_context(service.usage.of(place.sandbox))
    query = [("stdin", str(stdin).lower()), ("stdout", "true"), ("stderr", str(not tty).lower())]
    query += [("tty", str(tty).lower()), ("container", place.container)]
    query += [("command", word) for word in words]
    return await service.cluster.execute(place.pod, query)


async def _forward(socket: Socket, service: Service, name: str, using: AsyncExitStack) -> bridge.Upstream:
    text = socket.query_params.get("port", "")
    port = int(text) if text.isascii() and text.isdigit() and len(text) <= len(str(_HIGHEST_PORT)) else 0
    if not 1 <= port <= _HIGHEST_PORT:
        raise bad_request("bad-port", f"port: give a number from 1 to {_HIGHEST_PORT}")
    place = await pods.running(service, name, None)
    await using.enter_async_context(service.usage.of(place.sandbox))
    return await service.cluster.connect(place.pod, "portforward", [("ports", str(port))], FORWARD_PROTOCOL)


def _flag(socket: Socket, name: str) -> bool:
    text = socket.query_params.get(name, "false").lower()
    if text not in ("true", "false", "1", "0"):
        raise bad_request("bad-request", f"{name}: say true or false")
    return text in ("true", "1")
