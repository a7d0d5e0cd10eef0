"""A fake container runtime that speaks SPDY/3.1 over real sockets, as the kubelet's streaming server does."""

from __future__ import annotations

import asyncio
import struct
import zlib
from contextlib import asynccontextmanager

from tests.support.gateway_api_server import LOOPBACK

SUCCESS = b'{"metadata":{},"status":"Success"}'
UPGRADED = b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\n\r\n"
POD_UNKNOWN = b"HTTP/1.1 404 Not Found\r\nContent-Length: 18\r\n\r\npod does not exist"
HEADER = struct.Struct(">II")
FIN = 1


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
        yield server.sockets[0].getsockname()[1]
        await asyncio.gather(*handlers)
