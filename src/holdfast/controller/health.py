"""Health and metrics over plain HTTP, for the kubelet and for Prometheus.

    /healthz  the process answers      /readyz  it leads, or stands by      /metrics  Prometheus' text

Not here: what is counted (metrics.py).
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from holdfast.errors import PortTakenError

if TYPE_CHECKING:
    from holdfast.controller.metrics import Metrics


class Health:
    """The controller's state in one word, and a server that tells it."""

    def __init__(self, metrics: Metrics) -> None:
        self.state = "starting"
        self._metrics = metrics
        self._runner: Any = None

    async def start(self, host: str, port: int) -> None:
        """Serve until `stop`."""
        from aiohttp import web

        async def alive(_: web.Request) -> web.Response:
            return web.Response(text="ok\n")

        async def ready(_: web.Request) -> web.Response:
            status = 503 if self.state == "starting" else 200
            return web.Response(text=f"{self.state}\n", status=status)

        async def metrics(_: web.Request) -> web.Response:
            kind = "text/plain; version=0.0.4; charset=utf-8"
            return web.Response(body=self._metrics.text().encode(), headers={"Content-Type": kind})

        app = web.Application()
        app.add_routes([web.get("/healthz", alive), web.get("/readyz", ready), web.get("/metrics", metrics)])
        self._runner = web.AppRunner(app, access_log=None, handle_signals=False, shutdown_timeout=1.0)
        await self._runner.setup()
        try:
            await web.TCPSite(self._runner, host, port).start()
        except OSError as error:
            raise PortTakenError(
                f"port {port} on {host} cannot be listened on: {os.strerror(error.errno or 0)}",
                hint="Give another one with --port.",
            ) from error

    async def stop(self) -> None:
        if self._runner is not None:
            await self._runner.cleanup()
