"""Commands are retried with their input while the kubelet does not know the pod."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace

import aiohttp
import pytest
from tests.support.websocket_proxy import POD_NOT_FOUND_FRAME, fake_pod

from holdfast.api import Channel, encode_frame
from holdfast.errors import TemporaryError
from holdfast.retry import testing_mode
from holdfast.server.errors import PodResponseLostError
from holdfast.server.streams import RetryingExecStream, exec as exec_module
from holdfast.server.streams.exec import run_in_pod

DONE = encode_frame(Channel.STATUS, b'{"status": "Success"}')
EMPTY = encode_frame(Channel.STDOUT, b"")
FAILED = encode_frame(Channel.STATUS, b'{"status": "Failure", "message": "no such program"}')
INPUT = encode_frame(Channel.STDIN, b"input")


class Node:
    """A kubelet that does not know the pod for the first connections, then echoes the input."""

    def __init__(self, unknown, *, first=(), reads=1, hangs_up=False):
        self.unknown, self.first, self.reads, self.hangs_up = unknown, first, reads, hangs_up
        self.connections, self.got = 0, []

    async def __call__(self, side, _over):
        self.connections += 1
        for each in self.first:
            await side.socket.send_bytes(each)
        if self.connections <= self.unknown:
            await side.socket.send_bytes(POD_NOT_FOUND_FRAME)
            if self.hangs_up:
                side.transport.close()
                return
        else:
            self.got = [await side.socket.receive_bytes() for _ in range(self.reads)]
            await side.socket.send_bytes(encode_frame(Channel.STDOUT, b"out"))
            await side.socket.send_bytes(DONE)
        await side.socket.close(code=1000)


def talked(node, *sent):
    """Return all frames of a command with this input."""

    async def run():
        async with fake_pod(node) as address, aiohttp.ClientSession() as session, asyncio.timeout(30):
            stream = RetryingExecStream(
                lambda: session.ws_connect(address), await session.ws_connect(address)
            )
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
def test_exec_is_retried_until_kubelet_knows_pod(unknown, first):
    node = Node(unknown, first=first, reads=2)
    frames = [each for each in talked(node, INPUT, INPUT) if len(each) > 1]
    assert (frames, node.got) == ([encode_frame(Channel.STDOUT, b"out"), DONE], [INPUT, INPUT])
    assert node.connections == unknown + 1


def test_stdin_is_resent_completely_after_kubelet_hangup():
    much = [encode_frame(Channel.STDIN, bytes([number]) * 60_000) for number in range(4)]
    node = Node(unknown=3, reads=4, hangs_up=True)
    assert talked(node, *much)[-1] == DONE
    assert (node.got, node.connections) == (much, 4)


def test_many_small_frames_are_not_buffered():
    stream = RetryingExecStream(None, None)
    for _ in range(exec_module._MAX_BUFFERED_BYTES // 65 + 1):
        stream._buffer(b"x")
    assert stream._buffered is None


def test_stream_lost_during_reopen_may_have_started():
    async def lost():
        raise PodResponseLostError("lost")

    async def run():
        async with fake_pod(Node(unknown=1)) as address, aiohttp.ClientSession() as session:
            stream = RetryingExecStream(lost, await session.ws_connect(address))
            return (await stream.receive()).type

    assert asyncio.run(run()) is aiohttp.WSMsgType.CLOSED


def test_copy_on_unknown_pod_can_be_retried():
    class Cluster:
        async def open_exec_stream(self, target, argv, *, stdin):
            return self

        async def receive(self):
            return aiohttp.WSMessage(aiohttp.WSMsgType.BINARY, POD_NOT_FOUND_FRAME, None)

        async def close(self):
            pass

    async def run():
        place = SimpleNamespace(pod="p", container="c")
        async with run_in_pod(Cluster(), place, ["tar"]) as command:
            await command.wait()

    with pytest.raises(TemporaryError, match="does not know"):
        asyncio.run(run())


def test_unknown_pod_is_reported_after_timeout():
    node = Node(unknown=10_000)
    with testing_mode():
        assert talked(node, INPUT) == [POD_NOT_FOUND_FRAME]
    assert node.connections > 1


def test_discarded_stdin_is_not_resent_partially():
    node = Node(unknown=1)
    stdin = encode_frame(Channel.STDIN, bytes(exec_module._MAX_BUFFERED_BYTES))
    assert talked(node, stdin) == [POD_NOT_FOUND_FRAME]
    assert node.connections == 1


@pytest.mark.parametrize("said", [(FAILED,), (encode_frame(Channel.STDOUT, b"out"), POD_NOT_FOUND_FRAME)])
def test_started_or_rejected_exec_is_not_retried(said):
    connections = []

    async def does(side, _over):
        connections.append(side)
        for each in said:
            await side.socket.send_bytes(each)
        await side.socket.close(code=1000)

    assert talked(does) == [*said]
    assert len(connections) == 1
