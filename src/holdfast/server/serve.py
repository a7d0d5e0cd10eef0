"""Listens: the API with mutual TLS on one port, health in plain text on another, in one event loop.

SIGTERM lets requests under way end. Not here: the routes (app.py) and the certificates (trust.py).
"""

from __future__ import annotations

import asyncio
import logging
import signal
from contextlib import contextmanager
from pathlib import Path  # noqa: TC003 (read by msgspec)
from typing import TYPE_CHECKING, Any

import msgspec
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from holdfast.errors import PortTakenError
from holdfast.sandbox.wire import Workspace
from holdfast.server.app import answering_options, api, health
from holdfast.server.cluster import connected
from holdfast.server.leaving import Sockets, keep_alive
from holdfast.server.limits import Gate, Limits
from holdfast.server.service import Service
from holdfast.server.throttle import Throttle
from holdfast.server.trust import Trust

if TYPE_CHECKING:
    from collections.abc import Iterator

_GRACE_SECONDS = 3
_LONGEST_HEAD = 128 * 1024
"""a command is part of the address"""
_LARGEST_FRAME = 256 * 1024


class ServerOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that the server is told; the files are those of the mounted Secrets."""

    name: str
    certificate: Path
    key: Path
    client_ca: Path
    host: str = "0.0.0.0"  # noqa: S104 (inside a pod; only the node's published port leads there)
    port: int = 8443
    health_port: int = 8081
    namespace: str = "default"
    """where the sandboxes are"""
    kubeconfig: Path | None = None
    """the cluster; without it, the one that the server runs in"""
    endpoint: str | None = None
    """where sandboxes reach this API"""
    workspace: Workspace = Workspace()
    """of a sandbox whose maker does not say"""
    limits: Limits = Limits()


def serve(options: ServerOptions) -> None:
    """Serve until a signal ends it."""
    logging.basicConfig(level=logging.INFO, format="%(levelname)s %(name)s: %(message)s")
    logging.getLogger("uvicorn.error").addFilter(_is_worth_a_line)
    # It warns of each write to a client that has just left.
    logging.getLogger("asyncio").setLevel(logging.ERROR)
    asyncio.run(_serve(options))


def _is_worth_a_line(record: logging.LogRecord) -> bool:
    """Streams that end with the server, and WebSockets that were refused with an answer, are no faults."""
    ended = record.exc_info is not None and record.exc_info[0] is asyncio.CancelledError
    return not ended and "without completing handshake" not in record.getMessage()


class _Server(uvicorn.Server):
    """Leaves signals to `_serve`: there are two of these in one process."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


async def _serve(options: ServerOptions) -> None:
    trust = Trust(options.certificate, options.key, options.client_ca)
    cluster = await connected(options.kubeconfig, options.namespace)
    service = Service(cluster, endpoint=options.endpoint, workspace=options.workspace)
    main = _Server(_api_config(options, trust, service))
    side = _Server(_config(health(lambda: main.started), options.host, options.health_port))
    watching = asyncio.ensure_future(trust.watch(lambda: main.server_state.connections))
    try:
        await _together(watching, main, side)
    finally:
        await cluster.close()


async def _together(watching: asyncio.Future[None], *servers: _Server) -> None:
    def leave() -> None:
        for server in servers:
            server.should_exit = True

    loop = asyncio.get_running_loop()
    for each in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(each, leave)
    running = [asyncio.ensure_future(_until_end(server)) for server in servers]
    try:
        # Whichever ends first, on purpose or not, takes the others along: nobody is let in unwatched.
        await asyncio.wait([*running, watching], return_when=asyncio.FIRST_COMPLETED)
    finally:
        leave()
    await asyncio.gather(*running)
    if watching.done():
        watching.result()
    watching.cancel()


async def _until_end(server: _Server) -> None:
    try:
        await server.serve()
    except SystemExit as error:  # the library's answer to a port that cannot be had
        port = server.config.port
        raise PortTakenError(f"port {port} cannot be listened on", hint="Give another port.") from error


def _api_config(options: ServerOptions, trust: Trust, service: Service) -> uvicorn.Config:
    app = Throttle(answering_options(api(options.name, service)), Gate(options.limits), trust.holds)
    return _config(
        app,
        options.host,
        options.port,
        http=_protocol(trust),
        ws=Sockets,
        ws_max_size=_LARGEST_FRAME,
        ws_per_message_deflate=False,
        # A client whose frames wait for a slow pod cannot answer a ping: that is no reason to cut it off.
        ws_ping_timeout=None,
        h11_max_incomplete_event_size=_LONGEST_HEAD,
        ssl_context_factory=lambda _config, _default: trust.context,
    )


def _protocol(trust: Trust) -> type[asyncio.Protocol]:
    """The HTTP protocol, with who is at the other end in the state of each request."""

    class Known(H11Protocol):
        def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
            super().connection_made(transport)
            keep_alive(transport)
            client = trust.client(transport.get_extra_info("ssl_object"))
            self.app_state = {**self.app_state, "client": client}

    return Known


def _config(app: Any, host: str, port: int, **more: Any) -> uvicorn.Config:
    return uvicorn.Config(
        app,
        host=host,
        port=port,
        access_log=False,
        # Its lines about WebSockets would show the whole address, and with it people's commands.
        log_level="warning",
        lifespan="off",
        proxy_headers=False,
        server_header=False,
        timeout_graceful_shutdown=_GRACE_SECONDS,
        **more,
    )
