"""Event loop side of the proxy: accept connections, select faults, go down and up again.

Each rule has its own seeded generator: for one seed and one order of requests its faults are the same,
whatever other rules exist.
"""

from __future__ import annotations

import asyncio
import random
import re
import socket
import threading
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias

import msgspec

from holdfast.testing.faults import injectors
from holdfast.testing.faults.client_connection import (
    ClientConnection,
    ClientProtocol,
    ProxyExchange,
    UpstreamLostError,
    reset_connection,
)
from holdfast.testing.faults.http1 import MAX_HEAD_BYTES, BadMessageError
from holdfast.testing.faults.rules import FAULT_KINDS
from holdfast.testing.faults.upstream import Upstream, UpstreamPool

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable, Coroutine, Iterable

    from holdfast.testing.faults.request_log import RequestLog
    from holdfast.testing.faults.rules import Fault, Rule


_WATCH_QUERY = re.compile(r"(?i)(^|&)watch=(true|1|t)(&|$)")


class ProxiedRequest(NamedTuple):
    """The parts of a request that rules can match."""

    method: str
    path: str
    query: str
    headers: tuple[tuple[str, str], ...] = ()

    @property
    def is_watch(self) -> bool:
        return _WATCH_QUERY.search(self.query) is not None


class _RuleState:
    """A rule with its counters and its random generator."""

    def __init__(self, rule: Rule, seed: str) -> None:
        self.rule = rule
        self._random = random.Random(seed)  # noqa: S311 - repeatable on purpose
        self._path, self._query = re.compile(rule.path), re.compile(rule.query)
        self._header = re.compile(rule.header) if rule.header else None
        self._matched = 0
        self._injected = 0

    def draw_fault(self, request: ProxiedRequest) -> Fault | None:
        faults = self._applicable_faults(request)
        if not faults or not self._matches(request):
            return None
        self._matched += 1
        rule = self.rule
        if rule.probability < 1 and self._random.random() >= rule.probability:
            return None
        if self._matched <= rule.after or (rule.nth and self._matched - rule.after not in rule.nth):
            return None
        if rule.count is not None and self._injected >= rule.count:
            return None
        self._injected += 1
        return self._choose_fault(faults)

    def _matches(self, request: ProxiedRequest) -> bool:
        if self.rule.methods and request.method not in self.rule.methods:
            return False
        if not self._path.search(request.path) or not self._query.search(request.query):
            return False
        if self._header is None:
            return True
        return any(self._header.search(f"{name.lower()}: {value}") for name, value in request.headers)

    def _applicable_faults(self, request: ProxiedRequest) -> tuple[Fault, ...]:
        if request.is_watch:
            return self.rule.faults
        return tuple(fault for fault in self.rule.faults if not FAULT_KINDS[fault.kind].watch_only)

    def _choose_fault(self, faults: tuple[Fault, ...]) -> Fault:
        fault = faults[0] if len(faults) == 1 else self._random.choice(faults)
        forms = fault.retry_after_forms
        if len(forms) > 1:
            fault = msgspec.structs.replace(fault, retry_after=self._random.choice(forms))
        return fault


class FaultSelector:
    """The active rules; thread-safe."""

    def __init__(self, rules: Iterable[Rule] = (), seed: int = 0) -> None:
        self._lock = threading.Lock()
        self._seed = seed
        self._states: list[_RuleState] = []
        self.replace_rules(rules)

    def replace_rules(self, rules: Iterable[Rule]) -> None:
        """Replace the rules and reset all counters and generators."""
        armed = [_RuleState(rule, f"{self._seed}/{number}") for number, rule in enumerate(rules)]
        with self._lock:
            self._states = armed

    def select_fault(self, request: ProxiedRequest) -> tuple[Rule, Fault] | None:
        """Return the fault for a request and its rule, or None."""
        with self._lock:
            for armed in self._states:
                fault = armed.draw_fault(request)
                if fault is not None:
                    return armed.rule, fault
        return None


Outage: TypeAlias = Literal["refuse", "reset"]

_BACKLOG = 1024
_OUTAGE_SECONDS = 5.0


_ACCEPT_LOOP_TURNS = 3
"""loop iterations between the acceptance of a connection and the callback"""


class Listener:
    """The port of the proxy and its connections."""

    def __init__(
        self, upstream: Upstream, selector: FaultSelector, log: RequestLog, tls: ssl.SSLContext | None
    ) -> None:
        self._pool = UpstreamPool(upstream)
        self._selector = selector
        self._log = log
        self._tls = tls
        self._server: asyncio.Server | None = None
        self._clients: dict[ClientConnection, asyncio.Task[None]] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._server_lock = asyncio.Lock()
        self._tasks: set[asyncio.Task[None]] = set()

    async def open(self, port: int) -> None:
        """Bind the port and start serving; a second socket holds the port during outages."""
        self._port_holder = _bind_socket(port)
        self.port: int = self._port_holder.getsockname()[1]
        await self.up()

    async def up(self) -> None:
        """Serve again."""
        await self._serve(lambda: ClientProtocol(MAX_HEAD_BYTES, self._accept), self._tls)

    async def down(self, how: Outage, seconds: float | None = None) -> None:
        """Refuse connections, or accept and reset each, for a duration or until `up`."""
        if how == "refuse":
            await self._close_server()
        else:
            await self._serve(lambda: ClientProtocol(MAX_HEAD_BYTES, self._reject), None)
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
        self._pool.close()
        self._port_holder.close()

    async def _serve(self, factory: Callable[[], ClientProtocol], tls: ssl.SSLContext | None) -> None:
        async with self._server_lock:
            await self._close_server()
            loop = asyncio.get_running_loop()
            farewell = None if tls is None else 1.0
            self._server = await loop.create_server(
                factory,
                sock=_bind_socket(self.port),
                backlog=_BACKLOG,
                ssl=tls,
                ssl_shutdown_timeout=farewell,
            )

    async def _close_server(self) -> None:
        """Stop accepting, let accepted connections reach their callback, then close the server.

        asyncio leaks a connection whose server closes between acceptance and callback.
        """
        if self._server is None:
            return
        server, self._server = self._server, None
        for sock in server.sockets:
            asyncio.get_running_loop().remove_reader(sock.fileno())
        for _ in range(_ACCEPT_LOOP_TURNS):
            await asyncio.sleep(0)
        server.close()

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _reject(self, client: ClientConnection) -> None:
        record = self._log.add_record("", "")
        record.fault = "outage"
        reset_connection(client.writer)

    def _accept(self, client: ClientConnection) -> None:
        task = asyncio.ensure_future(self._serve_client(client))
        self._clients[client] = task
        task.add_done_callback(lambda _: self._clients.pop(client, None))

    async def _serve_client(self, client: ClientConnection) -> None:
        try:
            while await self._serve_request(client):
                pass
        except (OSError, BadMessageError):
            client.reset()
        except asyncio.CancelledError:
            client.reset()
        else:
            client.close()

    async def _serve_request(self, client: ClientConnection) -> bool:
        message = await client.read_request()
        if message is None:
            return False
        head, body = message
        method, _, rest = head.start_line.partition(" ")
        path, _, query = rest.rpartition(" ")[0].partition("?")
        record = self._log.add_record(method, path, query)
        decided = self._selector.select_fault(ProxiedRequest(method, path, query, tuple(head.headers)))
        fault = None
        if decided is not None:
            rule, fault = decided
            record.rule, record.fault = rule.name, fault.kind
            if fault.kind == "refuse":
                await self.down("refuse", _OUTAGE_SECONDS if fault.seconds is None else fault.seconds)
        try:
            return await injectors.handle_request(
                ProxyExchange(client, head, body, record, self._pool), fault
            )
        except UpstreamLostError as error:
            record.note = f"upstream: {error}"
            client.reset()
            return False


def _bind_socket(port: int) -> socket.socket:
    # With an explicit protocol asyncio disables Nagle's algorithm on accepted sockets, which costs 40 ms
    # per request.
    sock = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    try:
        sock.bind(("127.0.0.1", port))
    except OSError:
        sock.close()
        raise
    return sock
