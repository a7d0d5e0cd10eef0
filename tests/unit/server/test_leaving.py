"""A client that leaves while its input is held up ends its stream: real sockets, real back pressure."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager, suppress

import aiohttp
import uvicorn
from aiohttp import web
from litestar import Litestar, WebSocket, websocket
from tests.support.api_servers import LOOPBACK, free_ports

from holdfast.server import bridge
from holdfast.server.leaving import Sockets

FRAME = b"\0" + b"x" * 65536


@asynccontextmanager
async def deaf_pod():
    """The address of a pod's side that never reads."""
    over = asyncio.Event()

    async def never_reads(request):
        opened = web.WebSocketResponse()
        await opened.prepare(request)
        request.transport.pause_reading()
        await over.wait()
        request.transport.abort()
        return opened

    app = web.Application()
    app.router.add_get("/", never_reads)
    runner = web.AppRunner(app)
    await runner.setup()
    (port,) = free_ports(1)
    await web.TCPSite(runner, LOOPBACK, port).start()
    try:
        yield f"http://{LOOPBACK}:{port}/"
    finally:
        over.set()
        await runner.cleanup()


@asynccontextmanager
async def bridged(pod, ended):
    """The address of a server that joins its clients with that pod, and says when a stream has ended."""

    @websocket("/")
    async def join(socket: WebSocket) -> None:
        async with aiohttp.ClientSession() as session:
            upstream = await session.ws_connect(pod)
            await socket.accept()
            await bridge.exec_bridge(socket, upstream, stdin=True)
            ended.set()

    (port,) = free_ports(1)
    config = uvicorn.Config(
        Litestar([join]), host=LOOPBACK, port=port, ws=Sockets, ws_ping_interval=0.2, ws_ping_timeout=None,
        lifespan="off", log_level="critical", timeout_graceful_shutdown=1,
    )  # fmt: skip
    server = uvicorn.Server(config)
    server.config.load()
    server.lifespan = config.lifespan_class(config)
    await server.startup()
    ticking = asyncio.ensure_future(server.main_loop())
    try:
        yield f"http://{LOOPBACK}:{port}/"
    finally:
        server.should_exit = True
        await ticking
        await server.shutdown()


async def filled(client):
    """Send until nothing more goes through."""
    with suppress(TimeoutError):
        while True:
            async with asyncio.timeout(1.0):
                await client.send_bytes(FRAME)


async def leave_while_held_up():
    ended = asyncio.Event()
    async with deaf_pod() as pod, bridged(pod, ended) as address, aiohttp.ClientSession() as session:
        client = await session.ws_connect(address)
        await filled(client)
        assert not ended.is_set()
        client._response.connection.transport.abort()
        async with asyncio.timeout(20):
            await ended.wait()


def test_a_client_that_leaves_while_its_input_is_held_up_ends_its_stream():
    asyncio.run(leave_while_held_up())
