"""Listens: the API with mutual TLS on one port, health in plain text on another, in one event loop.

SIGTERM lets requests under way end. Not here: the routes (app.py).
"""

from __future__ import annotations

import asyncio
import signal
import ssl
from contextlib import contextmanager
from pathlib import Path  # noqa: TC003 (read by msgspec)
from typing import TYPE_CHECKING, Any

import msgspec
import uvicorn

from holdfast.errors import DamagedFileError, PortTakenError
from holdfast.server.app import api, health

if TYPE_CHECKING:
    from collections.abc import Iterator

_GRACE_SECONDS = 3


class ServerOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that the server is told; the files are those of the mounted Secrets."""

    name: str
    certificate: Path
    key: Path
    client_ca: Path
    host: str = "0.0.0.0"  # noqa: S104 (inside a pod; only the node's published port leads there)
    port: int = 8443
    health_port: int = 8081


def serve(options: ServerOptions) -> None:
    """Serve until a signal ends it."""
    asyncio.run(_serve(options))


class _Server(uvicorn.Server):
    """Leaves signals to `_serve`: there are two of these in one process."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


async def _serve(options: ServerOptions) -> None:
    main = _Server(_api_config(options))
    side = _Server(_config(health(lambda: main.started), options.host, options.health_port))
    servers = (main, side)

    def leave() -> None:
        for server in servers:
            server.should_exit = True

    loop = asyncio.get_running_loop()
    for each in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(each, leave)
    running = [asyncio.ensure_future(_until_end(server)) for server in servers]
    try:
        # Whichever ends first, on purpose or not, takes the other one along.
        await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
    finally:
        leave()
    await asyncio.gather(*running)


async def _until_end(server: _Server) -> None:
    try:
        await server.serve()
    except SystemExit as error:  # the library's answer to a port that cannot be had
        port = server.config.port
        raise PortTakenError(f"port {port} cannot be listened on", hint="Give another port.") from error


def _api_config(options: ServerOptions) -> uvicorn.Config:
    config = _config(
        api(options.name),
        options.host,
        options.port,
        ssl_certfile=str(options.certificate),
        ssl_keyfile=str(options.key),
        ssl_ca_certs=str(options.client_ca),
        ssl_cert_reqs=ssl.CERT_REQUIRED,
    )
    try:
        config.load()
    except OSError as error:  # of which ssl's errors are a kind
        raise DamagedFileError(
            f"the server's certificates cannot be used: {error.strerror or type(error).__name__}",
            hint="`holdfast up` looks at them and makes new ones where they are not good.",
        ) from error
    assert config.ssl is not None  # noqa: S101 (it was given files)
    config.ssl.minimum_version = ssl.TLSVersion.TLSv1_3
    return config


def _config(app: Any, host: str, port: int, **tls: Any) -> uvicorn.Config:
    return uvicorn.Config(
        app,
        host=host,
        port=port,
        access_log=False,
        log_level="info",
        lifespan="off",
        proxy_headers=False,
        server_header=False,
        timeout_graceful_shutdown=_GRACE_SECONDS,
        **tls,
    )
