"""Output of commands is complete or reported as lost. Uses real sockets."""

from __future__ import annotations

import asyncio

import aiohttp
import pytest
from tests.support.gateway_api_server import LOOPBACK
from tests.support.spdy_pod import SUCCESS, spdy_pod
from tests.support.virtual_time import run_virtual

from holdfast.api import Channel, encode_frame, encode_resize_frame
from holdfast.server.streams.spdy import SpdyExecStream, UpgradeRejectedError, open_exec

CLOSE_STDIN = encode_frame(Channel.CLOSE, bytes((Channel.STDIN,)))
STATUS = encode_frame(Channel.STATUS, SUCCESS)
OUTPUT_STREAMS = "error", "stdout", "stderr"


def opening(port, *, stdin=False, tty=False):
    return open_exec(
        f"http://{LOOPBACK}:{port}/exec?command=x", {"Accept": "*/*"}, None, 30.0, stdin=stdin, tty=tty
    )


async def received(stream):
    """All frames of a command, and the close code; None if the command is lost."""
    frames = []
    while (message := await stream.receive()).type is aiohttp.WSMsgType.BINARY:
        frames.append(message.data)
    return frames, message.data


def executed(does, *sent, stdin=False, tty=False):
    async def run():
        async with asyncio.timeout(30), spdy_pod(does) as port:
            stream = await opening(port, stdin=stdin, tty=tty)
            for frame in sent:
                await stream.send_bytes(frame)
            found = await received(stream)
            await stream.close()
            return found

    return asyncio.run(run())


def test_request_upgrades_to_spdy_and_not_to_websocket():
    requests = []

    async def does(side):
        requests.append(side.request)
        (await side.accept(*OUTPUT_STREAMS)).end()

    assert executed(does) == ([STATUS], 1000)
    assert requests[0].startswith("POST /exec?command=x HTTP/1.1\r\n")
    assert "Upgrade: SPDY/3.1\r\n" in requests[0]
    assert "X-Stream-Protocol-Version: v4.channel.k8s.io\r\n" in requests[0]
    assert "Accept: */*\r\n" in requests[0]


def test_output_and_status_arrive_in_order():
    async def does(side):
        await side.accept(*OUTPUT_STREAMS)
        side.send("stdout", b"out")
        side.send("stderr", b"err")
        side.send("stdout", b"", fin=True)
        side.end()

    assert executed(does) == ([b"\1out", b"\2err", STATUS], 1000)


def test_slow_reader_receives_everything_and_sends_nothing():
    """The pod closes at once: whatever reaches it after that would make its kernel discard the output."""
    piece, count, heard = b"x" * 32_768, 300, []

    async def does(side):
        await side.accept(*OUTPUT_STREAMS)
        for _ in range(count):
            side.send("stdout", piece)
            await side.writer.drain()
        side.end()
        heard.append(await side.reader.read(1))

    async def run():
        async with asyncio.timeout(30), spdy_pod(does) as port:
            stream = await opening(port)
            sizes = []
            while (message := await stream.receive()).type is aiohttp.WSMsgType.BINARY:
                sizes.append(len(message.data) - 1)
                await asyncio.sleep(0)
            await stream.close()
            return sizes, message.data

    sizes, code = asyncio.run(run())
    assert (sizes[:-1], code) == ([len(piece)] * count, 1000)
    assert heard == [b""]


@pytest.mark.parametrize("status", [b"", SUCCESS[:-5]], ids=["no status", "half a status"])
def test_connection_lost_before_status_is_not_a_success(status):
    async def does(side):
        await side.accept(*OUTPUT_STREAMS)
        side.send("stdout", b"half")
        side.send("error", status)
        side.writer.close()

    assert executed(does) == ([b"\1half"], None)


def test_connection_lost_within_a_frame_is_not_a_success():
    async def does(side):
        await side.accept(*OUTPUT_STREAMS)
        side.writer.write(side.ids["stdout"].to_bytes(4, "big") + (100).to_bytes(4, "big") + b"half")
        side.writer.close()

    assert executed(does) == ([], None)


def test_status_survives_connection_lost_after_it():
    async def does(side):
        await side.accept(*OUTPUT_STREAMS)
        side.send("error", SUCCESS)
        side.writer.close()

    assert executed(does) == ([STATUS], 1000)


def test_stdin_is_delivered_until_eof():
    heard = []

    async def does(side):
        await side.accept("stdin", *OUTPUT_STREAMS)
        heard.extend([await side.read() for _ in range(2)])
        side.end()

    executed(does, b"\0input", CLOSE_STDIN, stdin=True)
    assert heard == [("stdin", b"input", False), ("stdin", b"", True)]


def test_command_that_ends_its_input_gets_no_more():
    heard = []

    async def does(side):
        await side.accept("stdin", *OUTPUT_STREAMS)
        side.send("stdin", b"", fin=True)
        side.send("stdout", b"ready")
        heard.append(await side.reader.read())

    async def run():
        async with asyncio.timeout(30), spdy_pod(does) as port:
            stream = await opening(port, stdin=True)
            assert (await stream.receive()).data == b"\1ready"
            await stream.send_bytes(b"\0late")
            await stream.send_bytes(CLOSE_STDIN)
            await stream.close()

    asyncio.run(run())
    assert heard == [b""]


@pytest.mark.parametrize(
    ("typed", "keys"),
    [([], b"\x04"), ([b"\0ls\n"], b"\x04"), ([b"\0ls"], b"\x04\x04"), ([b"\0ls\n", b"\0"], b"\x04")],
)
def test_end_of_input_on_terminal_is_ctrl_d_and_not_a_hangup(typed, keys):
    heard = []

    async def does(side):
        await side.accept("error", "stdout", "stdin", "resize")
        while not heard or heard[-1][1] != keys:
            heard.append(await side.read())
        side.send("stdout", b"output after the end of the input")
        side.end()

    frames, code = executed(does, *typed, CLOSE_STDIN, stdin=True, tty=True)
    assert (frames[0], code) == (b"\1output after the end of the input", 1000)
    assert [name for name, _, _ in heard] == ["stdin"] * (len(typed) + 1)
    assert not any(is_last for _, _, is_last in heard)


def test_terminal_size_is_forwarded():
    heard = []

    async def does(side):
        await side.accept("error", "stdout", "resize")
        heard.append(await side.read())
        side.end()

    executed(does, encode_resize_frame(80, 24), tty=True)
    assert heard == [("resize", b'{"Width":80,"Height":24}', False)]


def test_rejected_upgrade_has_status_and_reason():
    async def run():
        answer = b"HTTP/1.1 404 Not Found\r\nContent-Length: 9\r\n\r\nnot there"
        async with spdy_pod(None, before=[answer]) as port:
            with pytest.raises(UpgradeRejectedError, match="HTTP 404: not there") as caught:
                await opening(port)
            return caught.value.status

    assert asyncio.run(run()) == 404


class RecordingWriter:
    """Records what would be sent."""

    def __init__(self):
        self.sent = []

    def write(self, data):
        self.sent.append(data)


def test_idle_connection_is_kept_open_by_rare_pings():
    async def run():
        reader, writer = asyncio.StreamReader(), RecordingWriter()
        stream = SpdyExecStream(reader, writer, tty=False)
        loop = asyncio.get_running_loop()
        loop.call_later(5 * 3600, reader.feed_eof)
        assert (await stream.receive()).type is aiohttp.WSMsgType.CLOSED
        return writer.sent

    sent = run_virtual(run())
    assert set(sent) == {bytes.fromhex("80030006 00000004 00000001")}
    assert 2 <= len(sent) <= 10  # the container runtime ends connections that are idle for 4 h
