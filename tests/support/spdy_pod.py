"""A fake container runtime that speaks SPDY/3.1 over real sockets, as the kubelet's streaming server does."""

from __future__ import annotations

import asyncio
import struct
import subprocess
import zlib
from contextlib import asynccontextmanager, suppress
from urllib.parse import parse_qs, urlsplit

from tests.support.gateway_api_server import LOOPBACK

from holdfast.server.namespace_client import NamespaceClient

SUCCESS = b'{"metadata":{},"status":"Success"}'
FAILURE = b'{"status":"Failure","details":{"causes":[{"reason":"ExitCode","message":"%d"}]}}'
UPGRADED = b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\n\r\n"
POD_UNKNOWN = b"HTTP/1.1 404 Not Found\r\nContent-Length: 18\r\n\r\npod does not exist"
HEADER = struct.Struct(">II")
FIN = 1


class RunningPod(NamespaceClient):
    """A cluster with one sandbox, whose pod runs."""

    async def get(self, kind, name):
        metadata = {"name": name, "uid": "u", "ownerReferences": [{"uid": "u", "controller": True}]}
        status = {"containerStatuses": [{"name": "c", "state": {"running": {}}}]}
        return {"kind": kind, "metadata": metadata, "spec": {"containers": [{"name": "c"}]}, "status": status}


class PodSide:
    """The runtime's side of one command; its streams are named as Kubernetes names them."""

    def __init__(self, reader, writer, request):
        self.reader, self.writer, self.request = reader, writer, request
        self.ids, self.inflate = {}, zlib.decompressobj()

    async def accept(self, *names):
        """Upgrade, and accept these streams."""
        self.writer.write(UPGRADED)
        while set(names) - set(self.ids):
            first, second = HEADER.unpack(await self.reader.readexactly(8))
            assert first == 0x80030001, hex(first)  # SYN_STREAM
            content = await self.reader.readexactly(second)
            stream_id, parent, priority = struct.unpack(">IIH", content[:10])
            assert (stream_id, parent, priority) == (2 * len(self.ids) + 1, 0, 0)
            words = self.read_words(self.inflate.decompress(content[10:]))
            assert words[0] == b"streamtype"
            self.ids[words[1].decode()] = stream_id
            self.writer.write(HEADER.pack(0x80030002, 8) + struct.pack(">II", stream_id, 0))
        assert set(self.ids) == set(names)
        return self

    @staticmethod
    def read_words(block):
        """The names and values of a header block; their number and each of them follow their lengths."""
        words, at = [], 4
        while at < len(block):
            (length,) = struct.unpack_from(">I", block, at)
            words.append(block[at + 4 : at + 4 + length])
            at += 4 + length
        assert struct.unpack_from(">I", block) == (len(words) // 2,)
        return words

    def send(self, name, data, *, fin=False):
        self.writer.write(HEADER.pack(self.ids[name], fin << 24 | len(data)) + data)

    def end(self, status=SUCCESS):
        """Report the status and close, as a container runtime does."""
        self.send("error", status)
        for stream_id in self.ids.values():
            self.writer.write(HEADER.pack(0x80030003, 8) + struct.pack(">II", stream_id, 5))
        self.writer.close()

    async def read(self):
        """The next frame of the client: its stream (or type), its content, and whether the stream ends."""
        first, second = HEADER.unpack(await self.reader.readexactly(8))
        content = await self.reader.readexactly(second & 0xFFFFFF)
        if first & 0x80000000:
            return first & 0xFFFF, content, False
        name = next(name for name, stream_id in self.ids.items() if stream_id == first)
        return name, content, bool(second >> 24 & FIN)


def run_locally(shell):
    """A pod whose commands run on this machine, with this program as `sh`."""

    async def run(side):
        words = parse_qs(urlsplit(side.request.split()[1]).query)["command"]
        await side.accept("error", "stdout", "stdin", "stderr")
        process = await asyncio.create_subprocess_exec(
            shell if words[0] == "sh" else words[0], *words[1:],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip

        async def feed():
            is_last = False
            with suppress(EOFError, OSError):  # the client is gone, or the command reads no more
                while not is_last:
                    _, data, is_last = await side.read()
                    process.stdin.write(data)
                    await process.stdin.drain()
            process.stdin.close()

        async def forward(name, output):
            while data := await output.read(1 << 15):
                side.send(name, data)

        feeding = asyncio.ensure_future(feed())
        await asyncio.gather(forward("stdout", process.stdout), forward("stderr", process.stderr))
        code = await process.wait()
        feeding.cancel()
        await asyncio.gather(feeding, return_exceptions=True)
        side.end(SUCCESS if code == 0 else FAILURE % code)

    return run


@asynccontextmanager
async def spdy_pod(handler, *, before=()):
    """The port of an API server whose commands `handler(side)` runs; the first requests get `before`."""
    answers, handlers = [*before], []

    async def handle(reader, writer):
        request = await reader.readuntil(b"\r\n\r\n")
        try:
            if answers:
                writer.write(answers.pop(0))
            else:
                await handler(PodSide(reader, writer, request.decode()))
        finally:
            writer.close()

    def serve(reader, writer):
        handlers.append(asyncio.ensure_future(handle(reader, writer)))

    async with await asyncio.start_server(serve, LOOPBACK, 0) as server:
        try:
            yield server.sockets[0].getsockname()[1]
        finally:
            await asyncio.gather(*handlers)
