"""Both sides of a bridge with real sockets: a pod that does what a test wants, and the joining server."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager

import aiohttp
import uvicorn
from aiohttp import web
from litestar import Litestar, WebSocket, websocket
from tests.support.gateway_api_server import LOOPBACK, free_ports

from holdfast.server.streams import DisconnectAwareProtocol, websocket_proxy


class PodConnection:
    """One WebSocket into a pod, with the connection under it."""

    def __init__(self, socket: web.WebSocketResponse, transport: asyncio.Transport) -> None:
        self.socket, self.transport = socket, transport

    async def wait_received(self) -> None:
        """Wait until the peer has read all frames: it answers a ping after them."""
        await self.socket.ping()
        while (await self.socket.receive()).type is not aiohttp.WSMsgType.PONG:
            pass


@asynccontextmanager
async def fake_pod(handler):
    """The address of a pod's side; `does(side, over)` is what it does with each connection."""
    over = asyncio.Event()

    async def serve(request):
        opened = web.WebSocketResponse(autoping=False)
        await opened.prepare(request)
        await handler(PodConnection(opened, request.transport), over)
        return opened

    app = web.Application()
    app.router.add_get("/", serve)
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
async def proxy_server(pod_url, ended, *, port_forward=False):
    """The address of a server that joins its clients with that pod, and says when a stream has ended."""

    @websocket("/")
    async def join(socket: WebSocket) -> None:
        async with aiohttp.ClientSession() as session:
            upstream = await session.ws_connect(pod_url)
            await socket.accept()
            if port_forward:
                await websocket_proxy.proxy_port_forward(socket, upstream)
            else:
                await websocket_proxy.proxy_exec(socket, upstream, stdin=True)
            ended.set()

    (port,) = free_ports(1)
    config = uvicorn.Config(
        Litestar([join]), host=LOOPBACK, port=port, ws=DisconnectAwareProtocol, ws_ping_interval=0.2,
        ws_ping_timeout=None, lifespan="off", log_level="critical", timeout_graceful_shutdown=1,
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
