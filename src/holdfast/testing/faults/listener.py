"""The proxy's event loop side: listens, takes connections, goes down and comes up again.

Runs in one loop and one thread. Not here: the thread, files and the public face (`proxy`).
"""

from __future__ import annotations

import asyncio
import socket
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from holdfast.testing.faults import inject
from holdfast.testing.faults.connection import Client, Exchange, UpstreamLost, Watcher, reset
from holdfast.testing.faults.decide import Decider, Request
from holdfast.testing.faults.upstream import Links, Upstream
from holdfast.testing.faults.wire import MAX_HEAD, BadMessage

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable, Coroutine

    from holdfast.testing.faults.log import RequestLog

Outage: TypeAlias = Literal["refuse", "reset"]

_BACKLOG = 1024
_OUTAGE_SECONDS = 5.0


_TURNS_TO_ACCEPT = 3
"""How often the loop goes round between taking a connection and telling us of it."""


class Listener:
    """Everything that happens on the port."""

    def __init__(
        self, upstream: Upstream, decider: Decider, log: RequestLog, tls: ssl.SSLContext | None
    ) -> None:
        self._links = Links(upstream)
        self._decider = decider
        self._log = log
        self._tls = tls
        self._server: asyncio.Server | None = None
        self._clients: dict[Client, asyncio.Task[None]] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._changes = asyncio.Lock()
        self._tasks: set[asyncio.Task[None]] = set()

    async def open(self, port: int) -> None:
        """Take the port and begin to serve. It stays ours through outages: a second socket holds it."""
        self._holder = _bound(port)
        self.port: int = self._holder.getsockname()[1]
        await self.up()

    async def up(self) -> None:
        """Serve again."""
        await self._serve(lambda: Watcher(MAX_HEAD, self._accept), self._tls)

    async def down(self, how: Outage, seconds: float | None = None) -> None:
        """Go away: refuse connections, or take and reset each, for a while or until `up`."""
        if how == "refuse":
            await self._close_server()
        else:
            await self._serve(lambda: Watcher(MAX_HEAD, self._turn_away), None)
        for client in tuple(self._clients):
            client.reset()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if seconds is not None:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(seconds, lambda: self._spawn(self.up()))

    async def close(self) -> None:
        await self._close_server()
        if self._timer is not None:
            self._timer.cancel()
        for client, task in tuple(self._clients.items()):
            client.writer.transport.abort()
            task.cancel()
        await asyncio.gather(*self._clients.values(), *self._tasks, return_exceptions=True)
        self._links.close()
        self._holder.close()

    async def _serve(self, factory: Callable[[], Watcher], tls: ssl.SSLContext | None) -> None:
        async with self._changes:
            await self._close_server()
            loop = asyncio.get_running_loop()
            farewell = None if tls is None else 1.0
            self._server = await loop.create_server(
                factory, sock=_bound(self.port), backlog=_BACKLOG, ssl=tls, ssl_shutdown_timeout=farewell
            )

    async def _close_server(self) -> None:
        """Take no more connections, let those that were just taken become clients, and only then close.

        asyncio forgets a connection, and leaves it open, whose server closes between the two.
        """
        if self._server is None:
            return
        server, self._server = self._server, None
        for sock in server.sockets:
            asyncio.get_running_loop().remove_reader(sock.fileno())
        for _ in range(_TURNS_TO_ACCEPT):
            await asyncio.sleep(0)
        server.close()

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _turn_away(self, client: Client) -> None:
        record = self._log.open("", "")
        record.fault = "outage"
        reset(client.writer)

    def _accept(self, client: Client) -> None:
        task = asyncio.ensure_future(self._attend(client))
        self._clients[client] = task
        task.add_done_callback(lambda _: self._clients.pop(client, None))

    async def _attend(self, client: Client) -> None:
        try:
            while await self._one(client):
                pass
        except (OSError, BadMessage):
            client.reset()
        except asyncio.CancelledError:
            client.reset()
        else:
            client.close()

    async def _one(self, client: Client) -> bool:
        message = await client.next_request()
        if message is None:
            return False
        head, body = message
        method, _, rest = head.first.partition(" ")
        path, _, query = rest.rpartition(" ")[0].partition("?")
        record = self._log.open(method, path, query)
        decided = self._decider.decide(Request(method, path, query, tuple(head.headers)))
        fault = None
        if decided is not None:
            rule, fault = decided
            record.rule, record.fault = rule.name, fault.kind
            if fault.kind == "refuse":
                await self.down("refuse", _OUTAGE_SECONDS if fault.seconds is None else fault.seconds)
        try:
            return await inject.carry_out(Exchange(client, head, body, record, self._links), fault)
        except UpstreamLost as error:
            record.note = f"upstream: {error}"
            client.reset()
            return False


def _bound(port: int) -> socket.socket:
    # With the protocol named, asyncio switches Nagle's algorithm off on what is accepted: 40 ms a request.
    sock = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    try:
        sock.bind(("127.0.0.1", port))
    except OSError:
        sock.close()
        raise
    return sock
