"""How a stream ends: only what the pod's side has ended by itself looks whole; real sockets, really cut."""

from __future__ import annotations

import asyncio

import aiohttp
import msgspec
import pytest
from tests.support.bridges import NOT_KNOWN, bridged, pod

from holdfast.errors import ClusterRefusedError, TemporaryError
from holdfast.sandbox.sdk.execution import ExecSession
from holdfast.sandbox.sdk.problems import AnswerLostError
from holdfast.sandbox.wire import Channel, frame
from holdfast.server import bridge

GREETING = b"\x00\x50\x00", b"\x01\x50\x00"
DONE = frame(Channel.STATUS, b'{"status": "Success"}')
FAILED = frame(Channel.STATUS, b'{"status": "Failure", "reason": "InternalError", "message": "no such file"}')


def says(*frames, then):
    """A pod that says this and then ends like that."""

    async def does(side, _over):
        for each in frames:
            await side.socket.send_bytes(each)
        await asyncio.sleep(0.1)  # what was said is on its way before the connection goes
        if then == "cut":
            side.transport.abort()
        elif then == "hang-up":
            side.transport.close()
        else:
            await side.socket.close(code=then)

    return does


def talked(does, **options):
    """All frames that a client gets, and the close code and reason."""

    async def run():
        ended, frames = asyncio.Event(), []
        async with (
            pod(does) as inner,
            bridged(inner, ended, **options) as address,
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
def test_a_forwarded_stream_that_is_cut_does_not_look_whole(then):
    frames, code, reason = talked(says(*GREETING, b"\0half of", then=then), forwards=True)
    assert (b"".join(frames), code) == (b"half of", 1011)
    assert reason == "the connection to the pod was lost"


def test_a_forwarded_stream_that_ended_is_whole():
    frames, code, _ = talked(says(*GREETING, b"\0all of it", then=1000), forwards=True)
    assert (b"".join(frames), code) == (b"all of it", 1000)


@pytest.mark.parametrize("then", ["cut", "hang-up", 1011, 1000])
def test_a_command_whose_end_nobody_saw_says_so_in_its_last_frame(then):
    frames, code, _ = talked(says(b"\1half", then=then))
    assert (frames[0], frames[-1][0], code) == (b"\1half", Channel.STATUS, 1011)
    assert msgspec.json.decode(frames[-1][1:])["reason"] == "ConnectionLost"


@pytest.mark.parametrize("then", ["cut", "hang-up", 1000])
def test_a_command_that_has_told_its_end_is_whole_however_the_connection_ends(then):
    frames, code, _ = talked(says(b"\1all", DONE, then=then))
    assert (frames, code) == ([b"\1all", DONE], 1000)


class Deaf:
    """A pod's side that takes nothing more, and whose last words are still on their way."""

    def __init__(self, *frames):
        self._left = [*frames]

    async def receive(self):
        await asyncio.sleep(0.05)
        if self._left:
            return aiohttp.WSMessage(aiohttp.WSMsgType.BINARY, self._left.pop(0), None)
        return aiohttp.WSMessage(aiohttp.WSMsgType.CLOSED, None, None)

    async def send_bytes(self, _data):
        raise aiohttp.ClientConnectionResetError("Cannot write to closing transport")

    async def close(self):
        pass


class Talker:
    """A client's side that sends at once, and keeps what it gets."""

    def __init__(self):
        self.scope, self.got, self.code = {}, [], None

    async def receive(self):
        return {"type": "websocket.receive", "bytes": b"\0input"}

    async def send(self, event):
        self.got.append(event["bytes"])

    async def close(self, code, reason):
        self.code = code


def test_what_a_pod_said_before_it_took_no_more_is_still_told():
    client = Talker()
    asyncio.run(bridge.exec_bridge(client, Deaf(b"\1last", b"\1words", DONE), stdin=True))
    assert (client.got, client.code) == ([b"\1last", b"\1words", DONE], 1000)


@pytest.mark.parametrize(
    ("does", "kind"),
    [
        (says(b"\1half", then="cut"), AnswerLostError),
        (says(FAILED, then=1000), ClusterRefusedError),
        (says(NOT_KNOWN, then=1000), TemporaryError),
    ],
)
def test_a_cut_command_and_one_that_could_not_be_run_are_told_apart(does, kind):
    async def run():
        async with (
            pod(does) as inner,
            bridged(inner, asyncio.Event()) as address,
            aiohttp.ClientSession() as session,
            session.ws_connect(address) as client,
        ):
            await ExecSession(client, "x").collected()

    with pytest.raises(kind):
        asyncio.run(run())


def test_a_session_whose_input_is_held_up_is_not_cut_while_it_waits():
    """Nobody reads the client's pongs while its input waits: that is no sign that it has gone."""

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
            pod(does) as inner,
            bridged(inner, asyncio.Event()) as address,
            aiohttp.ClientSession() as session,
            session.ws_connect(address) as client,
            asyncio.timeout(60),
        ):
            assert (await ExecSession(client, "x").collected(b"z" * 8_000_000)).exit_code == 0

    asyncio.run(run())
