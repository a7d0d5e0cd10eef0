"""The fault proxy: a thread with an event loop in front of a real API server.

    lost = rule("reset-after", methods="POST", probability=0.3)
    with FaultProxy(kubeconfig, rules=[lost], seed=7) as proxy:
        config.load_kube_config(str(proxy.kubeconfig))

Clients connect over TLS with a certificate of the proxy's CA. The proxy connects to the server with the
client certificate of the given kubeconfig, and passes tokens on. It listens on loopback only.
"""

from __future__ import annotations

import asyncio
import shutil
import socket
import ssl
import tempfile
import threading
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self, TypeAlias

from holdfast.errors import UsageError
from holdfast.testing.ephemeral_pki import EphemeralCA, write_kubeconfig
from holdfast.testing.faults.client_connection import ClientConnection, ProxyExchange
from holdfast.testing.faults.http1 import BadMessageError
from holdfast.testing.faults.injectors import handle_request
from holdfast.testing.faults.request_log import RequestLog
from holdfast.testing.faults.rules import FaultSelector
from holdfast.testing.faults.upstream import (
    Upstream,
    UpstreamLostError,
    UpstreamPool,
    load_key_pair,
    upstream_from_kubeconfig,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterable, Iterator

    from holdfast.testing.faults.rules import Rule

_PORT_COUNT = 65536
Outage: TypeAlias = Literal["refuse", "reset"]

_BACKLOG = 1024
# Iterations of the event loop between the acceptance of a connection and the callback.
_ACCEPT_LOOP_TURNS = 3


class Listener:
    """The port of the proxy and its connections.

    The constructor binds the port and raises an OSError if it is taken; `up` starts to serve. All other
    methods run in the event loop of the proxy.
    """

    def __init__(
        self,
        upstream: Upstream,
        selector: FaultSelector,
        log: RequestLog,
        tls: ssl.SSLContext | None,
        port: int,
    ) -> None:
        # Holds the port during outages.
        self._port_holder = _bind_socket(port)
        self.port: int = self._port_holder.getsockname()[1]
        self._pool = UpstreamPool(upstream)
        self._selector = selector
        self._log = log
        self._tls = tls
        self._server: asyncio.Server | None = None
        self._clients: dict[ClientConnection, asyncio.Task[None]] = {}
        self._server_lock = asyncio.Lock()
        self._end_of_outage: asyncio.TimerHandle | asyncio.Task[None] | None = None

    async def up(self) -> None:
        """Serve, or end an outage."""
        await self._replace_server(self._accept, self._tls)

    async def down(self, how: Outage, seconds: float | None = None) -> None:
        """Refuse connections, or accept and reset each, for a duration or until `up`."""
        await self._replace_server(None if how == "refuse" else self._reject, None)
        for client in tuple(self._clients):
            client.reset()
        if seconds is not None:
            self._end_of_outage = asyncio.get_running_loop().call_later(seconds, self._end_outage)

    def _end_outage(self) -> None:
        # The event loop itself keeps no reference to a task: without this one it could disappear.
        self._end_of_outage = asyncio.ensure_future(self.up())

    async def close(self) -> None:
        """Close the port and all connections."""
        await self._replace_server(None, None)
        for client, task in tuple(self._clients.items()):
            client.writer.transport.abort()
            task.cancel()
        await asyncio.gather(*self._clients.values(), return_exceptions=True)
        self._pool.close()
        self._port_holder.close()

    async def _replace_server(
        self, on_connect: Callable[[ClientConnection], None] | None, tls: ssl.SSLContext | None
    ) -> None:
        """Close the server, and start another one unless `on_connect` is None."""
        # The end of one outage and the start of the next may overlap; two servers would share the port.
        async with self._server_lock:
            # The end of an earlier outage must not end this one: it is a timer, or a task that waits for the
            # lock, unless it is the current task.
            end = self._end_of_outage
            if end is not None and end is not asyncio.current_task():
                end.cancel()
            await self._close_server()
            if on_connect is not None:
                self._server = await asyncio.get_running_loop().create_server(
                    lambda: ClientConnection(on_connect),
                    sock=_bind_socket(self.port),
                    backlog=_BACKLOG,
                    ssl=tls,
                    ssl_shutdown_timeout=None if tls is None else 1.0,
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

    def _reject(self, client: ClientConnection) -> None:
        self._log.add_record("", "").fault = "outage"
        client.reset()

    def _accept(self, client: ClientConnection) -> None:
        task = asyncio.ensure_future(self._serve_client(client))
        self._clients[client] = task
        task.add_done_callback(lambda _: self._clients.pop(client, None))

    async def _serve_client(self, client: ClientConnection) -> None:
        try:
            while await self._serve_request(client):
                pass
        # A cancellation comes from `ClientConnection.streaming` or from `close`: it ends this connection and
        # is not raised again.
        except (OSError, BadMessageError, asyncio.CancelledError):
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
        fault = self._selector.select_fault(record, head.headers)
        if fault is not None and fault.kind == "refuse":
            await self.down("refuse", fault.duration)
        exchange = ProxyExchange(client, head, body, record, self._pool)
        try:
            return await handle_request(exchange, fault)
        except UpstreamLostError as error:
            record.note = f"upstream: {error}"
            client.reset()
            return False
        finally:
            exchange.release_server()


def _bind_socket(port: int) -> socket.socket:
    # With an explicit protocol asyncio disables Nagle's algorithm on accepted sockets, which costs 40 ms
    # per request.
    sock = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    # The port holder and the server bind the same port. The holder never listens: the kernel refuses
    # connections while no server does.
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    try:
        sock.bind(("127.0.0.1", port))
    except OSError:
        sock.close()
        raise
    return sock


class FaultProxy:
    """A proxy on loopback that makes a real API server fail; a context manager.

    Rules and outages can change at any time, from any thread.

    Args:
        upstream: the real server, as a kubeconfig, a URL or an `Upstream`.
        rules: the rules to start with.
        seed: seed of all random draws.
        port: port on loopback; 0 selects a free one.
        context: context of the kubeconfig; its current context by default.
        tls: serve HTTPS and require a client certificate; otherwise plain HTTP.

    Attributes:
        log: a record of every request.

    Raises:
        UsageError: the kubeconfig, the URL or the port cannot be used.
    """

    def __init__(
        self,
        upstream: Upstream | Path | str,
        *,
        rules: Iterable[Rule] = (),
        seed: int = 0,
        port: int = 0,
        context: str | None = None,
        tls: bool = True,
    ) -> None:
        if not 0 <= port < _PORT_COUNT:
            raise UsageError(f"port: {port!r} is not between 0 and {_PORT_COUNT - 1}")
        self._upstream = _resolve_upstream(upstream, context)
        self._requested_port = port
        self._use_tls = tls
        self._selector = FaultSelector(rules, seed)
        self._thread: threading.Thread | None = None
        self.log = RequestLog()

    @property
    def url(self) -> str:
        """URL for clients of the proxy."""
        return f"http{'s' if self._use_tls else ''}://127.0.0.1:{self._listener.port}"

    @property
    def port(self) -> int:
        """Port on loopback."""
        return self._listener.port

    @property
    def kubeconfig(self) -> Path:
        """Path of the kubeconfig for clients of the proxy."""
        return self._directory / "kubeconfig"

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_exc: object) -> None:
        self.stop()

    def start(self) -> None:
        """Listen, and write the kubeconfig; raises `UsageError` if the port is taken."""
        if self._thread is not None:
            raise UsageError("The fault proxy is running already.")
        ca = EphemeralCA() if self._use_tls else None
        tls = None if ca is None else _server_tls_context(ca)
        port = self._requested_port
        self._directory = Path(tempfile.mkdtemp(prefix="holdfast-faults-"))
        try:
            self._listener = Listener(self._upstream, self._selector, self.log, tls, port)
        except OSError as error:
            self._directory.rmdir()
            raise UsageError(f"port: {port} cannot be listened on: {error}", cause=error) from error
        # A separate thread: a test that blocks in a call must not block the proxy that answers it.
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(
            target=self._loop.run_forever, name="holdfast-fault-proxy", daemon=True
        )
        self._thread.start()
        try:
            self.up()
            write_kubeconfig(
                self.kubeconfig,
                url=self.url,
                ca=ca.certificate if ca else None,
                client=ca.issue("fault-proxy-client") if ca else None,
                user=self._upstream.user,
            )
        # Also for Ctrl-C: `__exit__` does not run if `__enter__` raises.
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """Close every connection and stop listening; does nothing if it is stopped."""
        if self._thread is None:
            return
        self._run_in_loop(self._listener.close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
        self._thread = None
        shutil.rmtree(self._directory, ignore_errors=True)

    def replace_rules(self, *rules: Rule) -> None:
        """Replace the rules; their counters start at zero."""
        self._selector.replace_rules(rules)

    @contextmanager
    def faults(self, *rules: Rule) -> Iterator[RequestLog]:
        """Use these rules within a block, and the previous ones after it."""
        earlier = self._selector.rules
        self.replace_rules(*rules)
        try:
            yield self.log
        finally:
            self.replace_rules(*earlier)

    def outage(self, seconds: float, how: Outage = "refuse") -> None:
        """Start an outage of limited duration, and return immediately.

        Args:
            seconds: the duration.
            how: "refuse" closes the port; "reset" accepts, records and resets every connection.
        """
        self._run_in_loop(self._listener.down(how, seconds))

    def down(self, how: Outage = "refuse") -> None:
        """Start an outage that lasts until `up`."""
        self._run_in_loop(self._listener.down(how))

    def up(self) -> None:
        """End an outage."""
        self._run_in_loop(self._listener.up())

    def _run_in_loop(self, work: Coroutine[Any, Any, None]) -> None:
        # Callers are threads of the test; sockets and tasks belong to the thread of the event loop.
        asyncio.run_coroutine_threadsafe(work, self._loop).result()


def _resolve_upstream(upstream: Upstream | Path | str, context: str | None) -> Upstream:
    if isinstance(upstream, Upstream):
        return upstream
    text = str(upstream)
    if text.startswith(("http://", "https://")):
        return Upstream(text, ssl.create_default_context() if text.startswith("https") else None)
    return upstream_from_kubeconfig(Path(upstream), context)


def _server_tls_context(ca: EphemeralCA) -> ssl.SSLContext:
    """Require client certificates: the proxy gives its clients the permissions of the administrator."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    pair = ca.issue("fault-proxy", server=True)
    load_key_pair(context, pair.certificate, pair.key)
    context.load_verify_locations(cadata=ca.certificate.decode())
    context.verify_mode = ssl.CERT_REQUIRED
    context.set_alpn_protocols(["http/1.1"])
    return context
