"""Run the API with mutual TLS on one port and the plain-text health endpoint on another, in one event loop.

On SIGTERM, requests in progress may finish.
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

from holdfast.api import Workspace
from holdfast.errors import PortInUseError
from holdfast.sandbox import HostSettings
from holdfast.server.access_middleware import AccessMiddleware, ClientLimits, RateLimiter
from holdfast.server.app import create_app, health_app, options_middleware
from holdfast.server.namespace_client import connect_cluster
from holdfast.server.pools import PoolService, TemplateService
from holdfast.server.sandboxes import SandboxService
from holdfast.server.streams import DisconnectAwareProtocol, enable_keepalive
from holdfast.server.tls import CertificateReloader
from holdfast.server.usage import Kubelet, UsageService

if TYPE_CHECKING:
    from collections.abc import Iterator

    from litestar import Litestar

# Less than terminationGracePeriodSeconds of the pod (5), after which the kubelet sends SIGKILL.
_SHUTDOWN_GRACE_SECONDS = 3
_MAX_REQUEST_HEAD_BYTES = 128 * 1024
"""The command of an exec is part of the URL."""
# Bounds memory: uvicorn holds a whole message of each stream until the proxy takes it.
_MAX_FRAME_BYTES = 256 * 1024


class ServerOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Options of `holdfast server run`; the files come from mounted Secrets."""

    name: str
    certificate: Path
    key: Path
    client_ca: Path
    host: str = "0.0.0.0"  # noqa: S104 (inside a pod, reachable only through the published port of the node)
    port: int = 8443
    health_port: int = 8081
    namespace: str = "default"
    """namespace of the sandboxes"""
    kubeconfig: Path | None = None
    """kubeconfig of the cluster; the in-cluster configuration by default"""
    endpoint: str | None = None
    """URL under which sandboxes reach this API"""
    workspace: Workspace = Workspace()
    """default workspace of new sandboxes"""
    host_settings: HostSettings = HostSettings()
    """proxy and CA certificates for new sandboxes"""
    node: str | None = None
    """node that this server and the sandboxes run on"""
    node_address: str | None = None
    """IP address of that node, at which its kubelet reports statistics"""
    limits: ClientLimits = ClientLimits()


def serve(options: ServerOptions) -> None:
    """Serve until a signal arrives."""
    logging.basicConfig(level=logging.INFO, format="%(levelname)s %(name)s: %(message)s")
    logging.getLogger("uvicorn.error").addFilter(_is_loggable)
    # asyncio warns about every write to a client that has disconnected.
    logging.getLogger("asyncio").setLevel(logging.ERROR)
    asyncio.run(_run_servers(options))


def _is_loggable(record: logging.LogRecord) -> bool:
    """Drop the records of streams that shutdown cancels and of WebSockets rejected with an HTTP response."""
    is_cancelled = record.exc_info is not None and record.exc_info[0] is asyncio.CancelledError
    return not is_cancelled and "without completing handshake" not in record.getMessage()


class _UvicornServer(uvicorn.Server):
    """A uvicorn server that leaves signals to `_run_until_stopped`: one process runs two of them."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


async def _run_servers(options: ServerOptions) -> None:
    certificates = CertificateReloader(options.certificate, options.key, options.client_ca)
    cluster = await connect_cluster(options.kubeconfig, options.namespace)
    defaults: dict[str, Any] = {
        "endpoint": options.endpoint,
        "workspace": options.workspace,
        "host_settings": options.host_settings,
    }
    has_kubelet = options.node is not None and options.node_address is not None
    kubelet = Kubelet(options.node or "", options.node_address or "") if has_kubelet else None
    app = create_app(
        options.name,
        SandboxService(cluster, **defaults),
        TemplateService(cluster, **defaults),
        PoolService(cluster),
        UsageService(cluster, kubelet),
    )
    main = _UvicornServer(_api_config(options, certificates, app))
    health = _UvicornServer(
        _uvicorn_config(health_app(lambda: main.started), options.host, options.health_port)
    )
    watcher = asyncio.ensure_future(certificates.watch(lambda: main.server_state.connections))
    try:
        await _run_until_stopped(watcher, main, health)
    finally:
        # Last: streams that end within the grace period still use these connections.
        await cluster.close()


async def _run_until_stopped(watcher: asyncio.Future[None], *servers: _UvicornServer) -> None:
    def stop() -> None:
        for server in servers:
            server.should_exit = True

    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop)
    running = [asyncio.ensure_future(_serve_until_exit(server)) for server in servers]
    try:
        # Whatever ends first stops the rest: without the certificate watcher, revoked clients would stay
        # connected.
        await asyncio.wait([*running, watcher], return_when=asyncio.FIRST_COMPLETED)
    finally:
        stop()
    await asyncio.gather(*running)
    if watcher.done():
        watcher.result()
    watcher.cancel()


async def _serve_until_exit(server: _UvicornServer) -> None:
    try:
        await server.serve()
    except SystemExit as error:  # uvicorn exits when it cannot bind the port
        port = server.config.port
        hint = "Choose another port with --port or --health-port."
        raise PortInUseError(f"port {port}: cannot listen on it", hint=hint) from error


def _api_config(options: ServerOptions, certificates: CertificateReloader, app: Litestar) -> uvicorn.Config:
    limited_app = AccessMiddleware(
        options_middleware(app),
        RateLimiter(options.limits),
        certificates.is_trusted,
    )
    return _uvicorn_config(
        limited_app,
        options.host,
        options.port,
        http=_http_protocol(certificates),
        ws=DisconnectAwareProtocol,
        ws_max_size=_MAX_FRAME_BYTES,
        ws_per_message_deflate=False,
        # A client whose frames wait for a slow pod cannot answer pings; do not disconnect it.
        ws_ping_timeout=None,
        h11_max_incomplete_event_size=_MAX_REQUEST_HEAD_BYTES,
        ssl_context_factory=lambda _config, _default: certificates.context,
    )


def _http_protocol(certificates: CertificateReloader) -> type[asyncio.Protocol]:
    """Create a protocol class that puts the identity of the TLS client into the state of each request."""

    class IdentifiedProtocol(H11Protocol):
        def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
            # asyncio calls this after the handshake, so that OpenSSL has verified the client certificate.
            super().connection_made(transport)
            enable_keepalive(transport)
            client = certificates.client_identity(transport.get_extra_info("ssl_object"))
            # A new dict: uvicorn passes one dict to all connections, and clients would share an identity.
            self.app_state = {**self.app_state, "client": client}

    return IdentifiedProtocol


def _uvicorn_config(app: Any, host: str, port: int, **options: Any) -> uvicorn.Config:
    return uvicorn.Config(
        app,
        host=host,
        port=port,
        access_log=False,
        # uvicorn logs WebSocket URLs at info level, and these contain the users' commands.
        log_level="warning",
        lifespan="off",
        # A client must not choose its own address or scheme through X-Forwarded headers.
        proxy_headers=False,
        server_header=False,
        timeout_graceful_shutdown=_SHUTDOWN_GRACE_SECONDS,
        **options,
    )
