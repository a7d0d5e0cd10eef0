"""How streams end: only a stream that the pod ended looks complete. Uses real sockets."""

from __future__ import annotations

import asyncio

import aiohttp
import msgspec
import pytest
from tests.support.websocket_proxy import fake_pod, proxy_server
from websockets.asyncio.client import connect

from holdfast.api import Channel, encode_frame
from holdfast.client import AsyncExecSession
from holdfast.client.websocket import WebSocket
from holdfast.errors import ApiRequestRejectedError, ResponseLostError
from holdfast.server.streams import websocket_proxy

GREETING = b"\x00\x50\x00", b"\x01\x50\x00"
DONE = encode_frame(Channel.STATUS, b'{"status": "Success"}')
FAILED = encode_frame(
    Channel.STATUS, b'{"status": "Failure", "reason": "InternalError", "message": "no such file"}'
)


def says(*frames, then):
    """Return a pod that sends frames and then ends in this way."""

    async def does(side, _over):
        for each in frames:
            await side.socket.send_bytes(each)
        await side.wait_received()  # an aborted connection discards frames that the peer has not read
        if then == "cut":
            side.transport.abort()
        elif then == "hang-up":
            side.transport.close()
        else:
            await side.socket.close(code=then)

    return does


def talked(does, **options):
    """Return all frames that a client receives, with close code and reason."""

    async def run():
        ended, frames = asyncio.Event(), []
        async with (
            fake_pod(does) as inner,
            proxy_server(inner, ended, **options) as address,
            aiohttp.ClientSession() as session,
            session.ws_connect(address) as client,
            asyncio.timeout(30),
        ):
            while (message := await client.receive()).type is aiohttp.WSMsgType.BINARY:
                frames.append(message.data)
            await ended.wait()
            return frames, message.data, message.extra

    return asyncio.run(run())


@pytest.mark.parametrize("then", ["cut", "hang-up", 1011, 1001])
def test_cut_port_forward_is_not_reported_as_eof(then):
    frames, code, reason = talked(says(*GREETING, b"\0half of", then=then), port_forward=True)
    assert (b"".join(frames), code) == (b"half of", 1011)
    assert reason == "the connection to the pod was lost"


def test_finished_port_forward_is_complete():
    frames, code, _ = talked(says(*GREETING, b"\0all of it", then=1000), port_forward=True)
    assert (b"".join(frames), code) == (b"all of it", 1000)


@pytest.mark.parametrize("then", ["cut", "hang-up", 1011, 1000])
def test_exec_without_exit_status_is_reported_in_last_frame(then):
    frames, code, _ = talked(says(b"\1half", then=then))
    assert (frames[0], frames[-1][0], code) == (b"\1half", Channel.STATUS, 1011)
    assert msgspec.json.decode(frames[-1][1:])["reason"] == "ConnectionLost"


@pytest.mark.parametrize("then", ["cut", "hang-up", 1000])
def test_exec_with_exit_status_is_complete(then):
    frames, code, _ = talked(says(b"\1all", DONE, then=then))
    assert (frames, code) == ([b"\1all", DONE], 1000)


class Deaf:
    """A pod that accepts no input and has sent its last frames."""

    def __init__(self, *frames):
        self._left = [*frames]
        self._refused = asyncio.Event()

    async def receive(self):
        await self._refused.wait()
        if self._left:
            return aiohttp.WSMessage(aiohttp.WSMsgType.BINARY, self._left.pop(0), None)
        return aiohttp.WSMessage(aiohttp.WSMsgType.CLOSED, None, None)

    async def send_bytes(self, _data):
        self._refused.set()
        raise aiohttp.ClientConnectionResetError("Cannot write to closing transport")

    async def close(self):
        pass


class Talker:
    """A client that sends immediately and records what it receives."""

    def __init__(self):
        self.scope, self.got, self.code = {}, [], None

    async def receive(self):
        return {"type": "websocket.receive", "bytes": b"\0input"}

    async def send(self, event):
        self.got.append(event["bytes"])

    async def close(self, code, reason):
        self.code = code


def test_output_before_pod_stopped_reading_is_delivered():
    client = Talker()
    asyncio.run(websocket_proxy.proxy_exec(client, Deaf(b"\1last", b"\1words", DONE), stdin=True))
    assert (client.got, client.code) == ([b"\1last", b"\1words", DONE], 1000)


@pytest.mark.parametrize(
    ("does", "kind"),
    [
        (says(b"\1half", then="cut"), ResponseLostError),
        (says(FAILED, then=1000), ApiRequestRejectedError),
    ],
)
def test_cut_exec_differs_from_unstartable_exec(does, kind):
    async def run():
        async with (
            fake_pod(does) as inner,
            proxy_server(inner, asyncio.Event()) as address,
            connect(address.replace("http:", "ws:"), compression=None) as client,
        ):
            await AsyncExecSession(WebSocket(client), "x").communicate()

    with pytest.raises(kind):
        asyncio.run(run())
