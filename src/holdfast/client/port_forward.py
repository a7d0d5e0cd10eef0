"""Port forwarding from 127.0.0.1 to a sandbox, one WebSocket for each connection.

A failed connection does not affect the others. If a connection ends before the sandbox closed it, the local
side is reset: truncated data must not look complete.
"""

from __future__ import annotations

import asyncio
import socket as sockets
import struct
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING

from holdfast.api import Phase, SandboxView
from holdfast.client.errors import name_gateway
from holdfast.errors import (
    ApiRequestRejectedError,
    HoldfastError,
    ObjectConflictError,
    PortInUseError,
    ResponseLostError,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from holdfast.client.transport import Transport
    from holdfast.client.websocket import WebSocket

_STOPPED_PHASES = (Phase.SUSPENDED, Phase.FINISHED, Phase.EXPIRED, Phase.DELETING)
_LOOPBACK = "127.0.0.1"
_CHUNK_SIZE = 1 << 16
_LINGER_TIMEOUT = 2.0
_NORMAL_CLOSURE = 1000


class PortForward:
    """A forwarded port.

    Attributes:
        remote_port: port in the sandbox.
        address: local address and port.
    """

    def __init__(self, server: asyncio.Server, remote_port: int) -> None:
        self._server = server
        self.remote_port = remote_port
        self.address: tuple[str, int] = server.sockets[0].getsockname()[:2]

    @property
    def local_port(self) -> int:
        """The local port."""
        return self.address[1]

    async def serve(self) -> None:
        """Forward connections until cancelled."""
        await self._server.serve_forever()


@asynccontextmanager
async def forward_port(
    transport: Transport,
    name: str,
    remote_port: int,
    local_port: int = 0,
    *,
    on_error: Callable[[HoldfastError], None] = lambda _: None,
) -> AsyncIterator[PortForward]:
    """Forward a local port while the block runs; see `AsyncSandbox.forward`."""
    # Report a missing or stopped sandbox now, not at the first connection.
    _require_running(await transport.call("GET", f"/v1/sandboxes/{name}", SandboxView), transport.gateway)
    running: set[asyncio.Task[None]] = set()

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None  # noqa: S101 (this is a coroutine)
        running.add(task)
        is_complete = False
        try:
            is_complete = await _proxy_connection(transport, name, remote_port, reader, writer)
        except HoldfastError as error:
            on_error(error)
        except asyncio.CancelledError:
            # The block has ended. asyncio logs a traceback for a handler that ends as cancelled.
            return
        finally:
            running.discard(task)
            if not is_complete:
                _reset_connection(writer)
            writer.close()

    try:
        server = await asyncio.start_server(handle, _LOOPBACK, local_port)
    except OSError as error:
        raise PortInUseError(
            f"{_LOOPBACK}:{local_port}: cannot listen: {error.strerror or error}",
            hint="Choose another local port, or 0 for a free one.",
        ) from error
    try:
        yield PortForward(server, remote_port)
    finally:
        # First: a connection that is accepted after the cancellation would outlive the block.
        server.close()
        for task in list(running):
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)


def _require_running(view: SandboxView, gateway: str) -> None:
    """Raise an error for a sandbox without a pod; one that is starting accepts connections later."""
    if view.phase not in _STOPPED_PHASES:
        return
    hint = f"Run `holdfast sandbox get {view.name}`."
    if view.phase == Phase.SUSPENDED:
        hint = f"Run `holdfast sandbox resume {view.name}`."
    message = f"sandbox {view.name}: {view.phase}; it has no pod to forward ports to"
    raise ObjectConflictError(message, hint=name_gateway(hint, gateway))


async def _proxy_connection(
    transport: Transport,
    name: str,
    port: int,
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
) -> bool:
    """Proxy one connection in both directions.

    After the local program stops sending, it may still read the response. If the sandbox sends nothing for a
    while, the program is assumed to have left.

    Returns:
        Whether the sandbox closed the connection cleanly.
    """
    loop = asyncio.get_running_loop()
    async with transport.websocket(f"/v1/sandboxes/{name}/forward", query={"port": str(port)}) as socket:
        sending = asyncio.ensure_future(_send_to_sandbox(reader, socket))
        is_open = True

        def linger(limit: asyncio.Timeout) -> None:
            # The callback may run after the block; rescheduling a finished timeout raises RuntimeError.
            if is_open:
                limit.reschedule(loop.time() + _LINGER_TIMEOUT)

        try:
            async with asyncio.timeout(None) as limit:
                # At EOF, asyncio cannot tell a program that only stopped sending from one that has left.
                sending.add_done_callback(lambda _: linger(limit))
                async for data in socket:
                    writer.write(data)
                    await writer.drain()
                    if sending.done():
                        linger(limit)
                _raise_unless_clean_close(socket.close_frame, name, port)
                return True
        except (ConnectionError, TimeoutError):
            return False  # the local program has closed the connection
        finally:
            is_open = False
            sending.cancel()
            with suppress(asyncio.CancelledError, ConnectionError):
                await sending


async def _send_to_sandbox(reader: asyncio.StreamReader, socket: WebSocket) -> None:
    while chunk := await reader.read(_CHUNK_SIZE):
        await socket.send(chunk)


def _raise_unless_clean_close(close_frame: tuple[int, str] | None, name: str, port: int) -> None:
    if close_frame is None:
        raise ResponseLostError(f"port {port} of sandbox {name}: connection lost")
    code, reason = close_frame
    if code != _NORMAL_CLOSURE:
        problem = reason.strip() or f"close code {code}"
        raise ApiRequestRejectedError(
            f"port {port} of sandbox {name}: cannot connect: {problem}",
            hint="Check that a program listens on that port in the sandbox.",
        )


def _reset_connection(writer: asyncio.StreamWriter) -> None:
    """Reset a connection: the local program would take an orderly close for the end of the data."""
    with suppress(OSError):
        # With a linger time of 0, the kernel sends RST instead of FIN.
        writer.get_extra_info("socket").setsockopt(
            sockets.SOL_SOCKET, sockets.SO_LINGER, struct.pack("ii", 1, 0)
        )
    writer.transport.abort()
