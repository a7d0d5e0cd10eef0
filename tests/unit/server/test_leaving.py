"""A client that leaves while its input is held up ends its stream: real sockets, real back pressure."""

from __future__ import annotations

import asyncio
from contextlib import suppress

import aiohttp
from tests.support.bridges import bridged, pod

FRAME = b"\0" + b"x" * 65536


async def never_reads(opened, over):
    opened.transport.pause_reading()
    await over.wait()
    opened.transport.abort()


async def filled(client):
    """Send until nothing more goes through."""
    with suppress(TimeoutError):
        while True:
            async with asyncio.timeout(1.0):
                await client.send_bytes(FRAME)


async def leave_while_held_up():
    ended = asyncio.Event()
    async with (
        pod(never_reads) as address_of_pod,
        bridged(address_of_pod, ended) as address,
        aiohttp.ClientSession() as session,
    ):
        client = await session.ws_connect(address)
        await filled(client)
        assert not ended.is_set()
        client._response.connection.transport.abort()
        async with asyncio.timeout(20):
            await ended.wait()


def test_a_client_that_leaves_while_its_input_is_held_up_ends_its_stream():
    asyncio.run(leave_while_held_up())
