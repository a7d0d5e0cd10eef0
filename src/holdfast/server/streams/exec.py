"""Commands that the server itself runs in pods."""

from __future__ import annotations

from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING

import aiohttp

from holdfast.api import Channel, encode_frame, parse_exit_code
from holdfast.server.errors import PodResponseLostError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from holdfast.server.namespace_client import NamespaceClient
    from holdfast.server.sandboxes import PodTarget
    from holdfast.server.streams.spdy import SpdyExecStream

_MAX_STDERR_BYTES = 4096
_MAX_WRITE_BYTES = 64 * 1024


@asynccontextmanager
async def run_in_pod(
    cluster: NamespaceClient, target: PodTarget, argv: list[str], *, stdin: bool = False
) -> AsyncIterator[PodCommand]:
    """Run a command in a pod while the block runs."""
    stream = await cluster.open_exec_stream(target, argv, stdin=stdin)
    try:
        yield PodCommand(stream)
    finally:
        await stream.close()


class PodCommand:
    """A command that the server runs in a pod. Memory use is constant: a slow reader blocks the command."""

    def __init__(self, stream: SpdyExecStream) -> None:
        self._stream = stream
        self._stderr = bytearray()
        self._status: bytes | None = None
        self._stdin_closed = False

    @property
    def stderr(self) -> str:
        """The beginning of the standard error output."""
        return self._stderr.decode("utf-8", "replace").strip()

    async def read(self) -> bytes:
        """Return the next piece of standard output; empty at the end."""
        while self._status is None:
            message = await self._stream.receive()
            if message.type is not aiohttp.WSMsgType.BINARY:
                raise PodResponseLostError("the connection to the pod was lost before the command ended")
            data: bytes = message.data
            if data[:1] == bytes((Channel.STDOUT,)) and len(data) > 1:
                return data[1:]
            if data[:1] == bytes((Channel.STDERR,)):
                self._stderr += data[1 : 1 + max(0, _MAX_STDERR_BYTES - len(self._stderr))]
            elif data[:1] == bytes((Channel.STATUS,)) and len(data) > 1:
                self._status = data[1:]
        return b""

    async def write(self, data: bytes) -> None:
        """Write to standard input, as long as the command runs; blocks while the command does not read."""
        view = memoryview(data)
        while view and self._status is None and not self._stdin_closed:
            await self._send_frame(encode_frame(Channel.STDIN, bytes(view[:_MAX_WRITE_BYTES])))
            view = view[_MAX_WRITE_BYTES:]

    async def close_stdin(self) -> None:
        """Close standard input."""
        if self._status is None and not self._stdin_closed:
            self._stdin_closed = True
            await self._send_frame(encode_frame(Channel.CLOSE, bytes((Channel.STDIN,))))

    async def wait(self) -> int | None:
        """Read the rest of the output and return the exit code."""
        while await self.read():
            pass
        return parse_exit_code(self._status or b"")

    async def _send_frame(self, data: bytes) -> None:
        # A command that has ended accepts no input; `wait` returns its exit code.
        with suppress(OSError):
            await self._stream.send_bytes(data)
