"""A stream whose pod does not read stays open, although the server reads no pongs meanwhile."""

from __future__ import annotations

import asyncio

from tests.support.websocket_proxy import fake_pod, proxy_server
from websockets.asyncio.client import connect

from holdfast.api import Channel, encode_frame
from holdfast.client import AsyncExecSession
from holdfast.client.websocket import WebSocket

DONE = encode_frame(Channel.STATUS, b'{"status": "Success"}')


def test_session_with_blocked_stdin_is_not_closed():
    async def does(side, over):
        side.transport.pause_reading()
        await asyncio.sleep(3.0)
        side.transport.resume_reading()
        got = 0
        while got < 8_000_000:
            got += len((await side.socket.receive()).data) - 1
        await side.socket.send_bytes(DONE)
        await over.wait()

    async def run():
        async with (
            fake_pod(does) as inner,
            proxy_server(inner, asyncio.Event()) as address,
            connect(address.replace("http:", "ws:"), compression=None, ping_interval=None) as client,
            asyncio.timeout(60),
        ):
            assert (
                await AsyncExecSession(WebSocket(client), "x").communicate(b"z" * 8_000_000)
            ).exit_code == 0

    asyncio.run(run())
