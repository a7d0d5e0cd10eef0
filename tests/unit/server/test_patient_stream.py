"""A node that has just started does not know its pods: commands are asked for again, with all their input."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace

import aiohttp
import pytest
from tests.support.bridges import NOT_KNOWN, pod

from holdfast.errors import TemporaryError
from holdfast.sandbox.wire import Channel, frame
from holdfast.server import patient_stream
from holdfast.server.command import Command
from holdfast.server.patient_stream import PatientStream
from holdfast.server.problems import AnswerLostError

DONE = frame(Channel.STATUS, b'{"status": "Success"}')
EMPTY = frame(Channel.STDOUT, b"")
FAILED = frame(Channel.STATUS, b'{"status": "Failure", "message": "no such program"}')
INPUT = frame(Channel.STDIN, b"input")


class Node:
    """Does not know the pod for the first connections; then it says what it was sent, and ends."""

    def __init__(self, unknown, *, first=(), reads=1, hangs_up=False):
        self.unknown, self.first, self.reads, self.hangs_up = unknown, first, reads, hangs_up
        self.connections, self.got = 0, []

    async def __call__(self, side, _over):
        self.connections += 1
        for each in self.first:
            await side.socket.send_bytes(each)
        if self.connections <= self.unknown:
            await side.socket.send_bytes(NOT_KNOWN)
            if self.hangs_up:
                side.transport.close()
                return
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


def test_input_that_a_node_hangs_up_on_is_sent_again_whole():
    much = [frame(Channel.STDIN, bytes([number]) * 60_000) for number in range(4)]
    node = Node(unknown=3, reads=4, hangs_up=True)
    assert talked(node, *much)[-1] == DONE
    assert (node.got, node.connections) == (much, 4)


def test_very_many_small_frames_are_not_kept():
    stream = PatientStream(None, None)
    for _ in range(patient_stream._MOST_KEPT // 65 + 1):
        stream._keep(b"x")
    assert stream._kept is None


def test_a_stream_that_is_lost_as_it_is_opened_again_may_have_begun():
    async def lost():
        raise AnswerLostError("lost")

    async def run():
        async with pod(Node(unknown=1)) as address, aiohttp.ClientSession() as session:
            stream = PatientStream(lost, await session.ws_connect(address))
            return (await stream.receive()).type

    assert asyncio.run(run()) is aiohttp.WSMsgType.CLOSED


def test_a_copy_on_a_node_that_never_knows_the_pod_may_be_asked_for_again():
    class Cluster:
        async def execute(self, *_):
            return self

        async def receive(self):
            return aiohttp.WSMessage(aiohttp.WSMsgType.BINARY, NOT_KNOWN, None)

        async def close(self):
            pass

    async def run():
        place = SimpleNamespace(pod="p", container="c")
        async with Command(Cluster(), place, ["tar"]) as command:
            await command.code()

    with pytest.raises(TemporaryError, match="does not know"):
        asyncio.run(run())


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
