"""A client that disconnects while its input is blocked ends its stream. Uses real sockets."""

from __future__ import annotations

import asyncio
from contextlib import suppress

import aiohttp
from tests.support.websocket_proxy import fake_pod, proxy_server

FRAME = b"\0" + b"x" * 65536


async def never_reads(opened, over):
    opened.transport.pause_reading()
    await over.wait()
    opened.transport.abort()


async def filled(client):
    """Send until the buffers are full."""
    with suppress(TimeoutError):
        while True:
            async with asyncio.timeout(1.0):
                await client.send_bytes(FRAME)


async def leave_while_held_up():
    ended = asyncio.Event()
    async with (
        fake_pod(never_reads) as address_of_pod,
        proxy_server(address_of_pod, ended) as address,
        aiohttp.ClientSession() as session,
    ):
        client = await session.ws_connect(address)
        await filled(client)
        assert not ended.is_set()
        client._response.connection.transport.abort()
        async with asyncio.timeout(20):
            await ended.wait()


def test_client_disconnect_with_blocked_stdin_ends_stream():
    asyncio.run(leave_while_held_up())
