"""One command in a pod that the server itself talks to: bytes in, bytes out, and how it ended.

Used for copying files. Memory stays flat: whoever reads slowly makes the command wait. Not here: which
command it is.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Self

import aiohttp

from holdfast.errors import TemporaryError
from holdfast.sandbox.wire import Channel, exit_code, frame, has_not_begun
from holdfast.server.problems import AnswerLostError

if TYPE_CHECKING:
    from types import TracebackType

    from holdfast.server.cluster import Cluster
    from holdfast.server.patient_stream import PatientStream
    from holdfast.server.pods import Place

_MOST_STDERR = 4096
_LARGEST_WRITE = 64 * 1024


class Command:
    """A command in a pod; `async with` makes sure that its connection ends."""

    def __init__(self, cluster: Cluster, place: Place, words: list[str], *, stdin: bool = False) -> None:
        self._cluster, self._place, self._words, self._stdin = cluster, place, words, stdin
        self._socket: PatientStream | None = None
        self._stderr = bytearray()
        self._status: bytes | None = None
        self._input_ended = False

    async def __aenter__(self) -> Self:
        query = [("stdin", str(self._stdin).lower()), ("stdout", "true"), ("stderr", "true")]
        query += [("container", self._place.container), *(("command", word) for word in self._words)]
        self._socket = await self._cluster.execute(self._place.pod, query)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._socket is not None:
            await self._socket.close()

    @property
    def stderr(self) -> str:
        """What it said beside its output, shortened."""
        return self._stderr.decode("utf-8", "replace").strip()

    async def read(self) -> bytes:
        """The next piece of its output; nothing at its end."""
        while self._status is None:
            message = await self._opened.receive()
            if message.type is not aiohttp.WSMsgType.BINARY:
                raise AnswerLostError("the connection to the pod was lost before the command ended")
            data: bytes = message.data
            if data[:1] == bytes((Channel.STDOUT,)) and len(data) > 1:
                return data[1:]
            if data[:1] == bytes((Channel.STDERR,)):
                self._stderr += data[1 : 1 + max(0, _MOST_STDERR - len(self._stderr))]
            elif data[:1] == bytes((Channel.STATUS,)) and len(data) > 1:
                self._status = data[1:]
                if has_not_begun(self._status):
                    raise TemporaryError("the node does not know the sandbox's pod yet")
        return b""

    async def write(self, data: bytes) -> None:
        """Give it input, as long as it takes some; waits while it is behind."""
        view = memoryview(data)
        while view and self._status is None and not self._input_ended:
            await self._sent(frame(Channel.STDIN, bytes(view[:_LARGEST_WRITE])))
            view = view[_LARGEST_WRITE:]

    async def end_input(self) -> None:
        """There is no more input."""
        if self._status is None and not self._input_ended:
            self._input_ended = True
            await self._sent(frame(Channel.CLOSE, bytes((Channel.STDIN,))))

    async def code(self) -> int | None:
        """Its exit code, once its output has been read to the end."""
        while await self.read():
            pass
        return exit_code(self._status or b"")

    @property
    def _opened(self) -> PatientStream:
        assert self._socket is not None  # noqa: S101 (opened by `async with`)
        return self._socket

    async def _sent(self, data: bytes) -> None:
        # A command that has ended takes no more; whoever reads finds out how it ended.
        with suppress(aiohttp.ClientError, ConnectionError):
            await self._opened.send_bytes(data)
