"""A sandbox whose commands run in a container of the engine, without a gateway; the scripts are real."""

from __future__ import annotations

import asyncio
import json
from contextlib import asynccontextmanager, suppress
from types import SimpleNamespace
from typing import TYPE_CHECKING

from holdfast.api import Channel, encode_frame
from holdfast.client import Sandbox
from holdfast.client.scripts import ScriptRunner

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tests.support.userlands import UserlandContainer

_CHUNK_SIZE = 1 << 16


class _ExecSocket:
    """Frames of one `docker exec`, as the gateway sends and receives them."""

    close_frame = None

    def __init__(self, process: asyncio.subprocess.Process, cut_after: int | None) -> None:
        self._process = process
        self._cut_after = cut_after

    async def send(self, data: bytes) -> None:
        with suppress(ConnectionError):
            if data[0] == Channel.STDIN:
                self._process.stdin.write(data[1:])
                await self._process.stdin.drain()
            elif data[0] == Channel.CLOSE:
                self._process.stdin.close()

    async def __aiter__(self) -> AsyncIterator[bytes]:
        frames: asyncio.Queue[bytes | None] = asyncio.Queue()

        async def read(channel: Channel, stream: asyncio.StreamReader) -> None:
            while data := await stream.read(_CHUNK_SIZE):
                frames.put_nowait(encode_frame(channel, data))
            frames.put_nowait(None)

        readers = [
            asyncio.ensure_future(read(Channel.STDOUT, self._process.stdout)),
            asyncio.ensure_future(read(Channel.STDERR, self._process.stderr)),
        ]
        try:
            received = 0
            for _ in readers:
                while (frame := await frames.get()) is not None:
                    yield frame
                    received += len(frame) - 1
                    if self._cut_after is not None and received >= self._cut_after:
                        return
            code = await self._process.wait()
            if self._cut_after is None:
                yield encode_frame(Channel.STATUS, _status(code))
        finally:
            for reader in readers:
                reader.cancel()


def _status(code: int) -> bytes:
    causes = [{"reason": "ExitCode", "message": str(code)}]
    failure = {"status": "Failure", "reason": "NonZeroExitCode", "details": {"causes": causes}}
    return json.dumps(failure if code else {"status": "Success"}).encode()


class _ContainerRunner(ScriptRunner):
    """Runs scripts in a container.

    Attributes:
        cuts: for each of the next connections, the bytes of output after which it is lost, or None.
    """

    def __init__(self, container: UserlandContainer, user: str) -> None:
        super().__init__(SimpleNamespace(gateway="local"), "box")
        self._prefix = ["docker", "exec", "--interactive", f"--user={user}", f"--env=PATH={container.path}"]
        self._container = container
        self.cuts: list[int | None] = []

    @asynccontextmanager
    async def open_socket(self, argv, *, tty=False, stdin=False, container=None):
        process = await asyncio.create_subprocess_exec(
            *self._prefix, self._container.id, *argv,
            stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
        )  # fmt: skip
        if not stdin:
            process.stdin.close()
        try:
            yield _ExecSocket(process, self.cuts.pop(0) if self.cuts else None)
        finally:
            # The end of the input is all that the sandbox sees of a lost client.
            if process.returncode is None:
                process.kill()
            await process.wait()


def container_sandbox(container: UserlandContainer, user: str = "0") -> Sandbox:
    """A client for a container of `UserlandContainer`; commands run as that user."""
    sandbox = Sandbox("box", lambda: None)
    sandbox._delegate._scripts = _ContainerRunner(container, user)
    return sandbox


def cut_connections(sandbox: Sandbox, *cuts: int | None) -> None:
    """Lose the next connections of a client, each after so many bytes of output and before the exit code."""
    sandbox._delegate._scripts.cuts[:] = cuts
