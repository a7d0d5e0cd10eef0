"""A port of this machine that leads to a port in a sandbox: on loopback alone, any number of connections.

Each connection has a WebSocket of its own; one that fails takes no other along. One that ends before the
sandbox's side has said so is reset: data that was cut must not look whole. Not here: Ctrl-C.
"""

from __future__ import annotations

import asyncio
import socket as sockets
import struct
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any

import aiohttp

from holdfast.errors import ClusterRefusedError, HoldfastError, PortTakenError
from holdfast.sandbox.sdk.problems import AnswerLostError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from holdfast.sandbox.sdk.connection import Connection

_LOOPBACK = "127.0.0.1"
_CHUNK = 1 << 16
_LINGER_SECONDS = 2.0


class Forward:
    """An open way from a local port to one in a sandbox."""

    def __init__(self, server: asyncio.Server, remote_port: int) -> None:
        self._server = server
        self.remote_port = remote_port
        self.address: tuple[str, int] = server.sockets[0].getsockname()[:2]

    @property
    def local_port(self) -> int:
        """The port here; a free one was taken where 0 was asked for."""
        return self.address[1]

    async def serve(self) -> None:
        """Go on until cancelled."""
        await self._server.serve_forever()


@asynccontextmanager
async def forwarded(
    connection: Connection,
    name: str,
    remote_port: int,
    local_port: int = 0,
    *,
    failed: Callable[[HoldfastError], None] = lambda _: None,
) -> AsyncIterator[Forward]:
    """Lead a local port to a sandbox's for as long as the block runs; `failed` is told of each that fails."""
    running: set[asyncio.Task[None]] = set()

    async def one(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None  # noqa: S101 (this is a coroutine)
        running.add(task)
        whole = False
        try:
            whole = await _carry(connection, name, remote_port, reader, writer)
        except HoldfastError as error:
            failed(error)
        except asyncio.CancelledError:
            # The block has ended. The library prints a traceback for a connection that ends as cancelled.
            return
        finally:
            running.discard(task)
            if not whole:
                _reset(writer)
            writer.close()

    try:
        server = await asyncio.start_server(one, _LOOPBACK, local_port)
    except OSError as error:
        raise PortTakenError(
            f"port {local_port} on {_LOOPBACK} cannot be listened on: {error.strerror or error}",
            hint="Choose another local port, or 0 for a free one.",
        ) from error
    try:
        yield Forward(server, remote_port)
    finally:
        server.close()
        for task in list(running):
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)


async def _carry(
    connection: Connection,
    name: str,
    port: int,
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
) -> bool:
    """One connection, both ways, until the sandbox's side has ended; whether it has.

    A program that says no more may still want to hear the answer; one that hears nothing has left.
    """
    loop = asyncio.get_running_loop()
    path = f"/v1/sandboxes/{name}/forward"
    async with connection.web_socket(path, query={"port": str(port)}) as socket:
        outward = asyncio.ensure_future(_outward(reader, socket))
        open_still = True

        def linger(patience: asyncio.Timeout) -> None:
            if open_still:
                patience.reschedule(loop.time() + _LINGER_SECONDS)

        try:
            async with asyncio.timeout(None) as patience:
                outward.add_done_callback(lambda _: linger(patience))
                while (message := await socket.receive()).type is aiohttp.WSMsgType.BINARY:
                    writer.write(message.data)
                    await writer.drain()
                    if outward.done():
                        linger(patience)
                _refuse_broken(message, name, port)
                return True
        except (ConnectionError, TimeoutError):
            return False  # the program here has gone: nobody is left to be told
        finally:
            open_still = False
            outward.cancel()
            with suppress(asyncio.CancelledError, ConnectionError, aiohttp.ClientError):
                await outward


async def _outward(reader: asyncio.StreamReader, socket: aiohttp.ClientWebSocketResponse[bool]) -> None:
    while chunk := await reader.read(_CHUNK):
        await socket.send_bytes(chunk)


def _refuse_broken(message: Any, name: str, port: int) -> None:
    if message.type is not aiohttp.WSMsgType.CLOSE:
        raise AnswerLostError(f"the connection to port {port} of sandbox {name} was cut")
    if message.data != aiohttp.WSCloseCode.OK:
        why = str(message.extra or "").strip() or f"close code {message.data}"
        raise ClusterRefusedError(
            f"port {port} of sandbox {name} could not be reached: {why}",
            hint="See that a program listens on that port in the sandbox.",
        )


def _reset(writer: asyncio.StreamWriter) -> None:
    """End a connection so that the program here notices: an orderly end would pass for the data's end."""
    with suppress(OSError):
        writer.get_extra_info("socket").setsockopt(
            sockets.SOL_SOCKET, sockets.SO_LINGER, struct.pack("ii", 1, 0)
        )
    writer.transport.abort()
