"""A node that has just started does not know its pods: commands are asked for again, with all their input."""

from __future__ import annotations

import asyncio

import aiohttp
import pytest
from tests.support.bridges import pod

from holdfast.sandbox.wire import Channel, frame
from holdfast.server import patient_stream
from holdfast.server.patient_stream import PatientStream

DONE = frame(Channel.STATUS, b'{"status": "Success"}')
EMPTY = frame(Channel.STDOUT, b"")
NOT_KNOWN = frame(
    Channel.STATUS,
    b'{"status": "Failure", "message": "Internal error: unable to upgrade connection: pod does not exist"}',
)
FAILED = frame(Channel.STATUS, b'{"status": "Failure", "message": "no such program"}')
INPUT = frame(Channel.STDIN, b"input")


class Node:
    """Does not know the pod for the first connections; then it says what it was sent, and ends."""

    def __init__(self, unknown, *, first=(), reads=1):
        self.unknown, self.first, self.reads = unknown, first, reads
        self.connections, self.got = 0, []

    async def __call__(self, side, _over):
        self.connections += 1
        for each in self.first:
            await side.socket.send_bytes(each)
        if self.connections <= self.unknown:
            await side.socket.send_bytes(NOT_KNOWN)
        else:
            self.got = [await side.socket.receive_bytes() for _ in range(self.reads)]
            await side.socket.send_bytes(frame(Channel.STDOUT, b"out"))
            await side.socket.send_bytes(DONE)
        await side.socket.close(code=1000)


def talked(node, *sent):
    """All frames of a command that is sent this."""

    async def run():
        async with pod(node) as address, aiohttp.ClientSession() as session, asyncio.timeout(30):
            stream = PatientStream(lambda: session.ws_connect(address), await session.ws_connect(address))
            for each in sent:
                await stream.send_bytes(each)
            frames = []
            while (message := await stream.receive()).type is aiohttp.WSMsgType.BINARY:
                frames.append(message.data)
            await stream.close()
            return frames

    return asyncio.run(run())


@pytest.mark.parametrize("first", [(), (EMPTY, EMPTY)], ids=["at once", "after empty frames"])
@pytest.mark.parametrize("unknown", [0, 1, 3])
def test_it_is_asked_for_again_until_its_node_knows_the_pod(unknown, first):
    node = Node(unknown, first=first, reads=2)
    frames = [each for each in talked(node, INPUT, INPUT) if len(each) > 1]
    assert (frames, node.got) == ([frame(Channel.STDOUT, b"out"), DONE], [INPUT, INPUT])
    assert node.connections == unknown + 1


def test_one_that_is_never_known_is_told_in_its_time(monkeypatch):
    brief = patient_stream._UNTIL_KNOWN.with_(deadline=0.5)
    monkeypatch.setattr(patient_stream, "_UNTIL_KNOWN", brief)
    node = Node(unknown=10_000)
    assert talked(node, INPUT) == [NOT_KNOWN]
    assert node.connections > 1


def test_what_was_sent_and_is_not_kept_any_more_is_not_sent_in_part():
    node = Node(unknown=1)
    assert talked(node, frame(Channel.STDIN, bytes(patient_stream._MOST_KEPT))) == [NOT_KNOWN]
    assert node.connections == 1


@pytest.mark.parametrize("said", [(FAILED,), (frame(Channel.STDOUT, b"out"), NOT_KNOWN)])
def test_what_has_begun_or_is_refused_for_another_reason_is_never_asked_for_again(said):
    connections = []

    async def does(side, _over):
        connections.append(side)
        for each in said:
            await side.socket.send_bytes(each)
        await side.socket.close(code=1000)

    assert talked(does) == [*said]
    assert len(connections) == 1
