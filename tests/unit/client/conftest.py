"""A peer with real mutual TLS on loopback whose answers a test writes."""

from __future__ import annotations

import asyncio
import ssl
import threading
from contextlib import asynccontextmanager

import pytest
from aiohttp import web

from holdfast.client import GatewayEndpoint
from holdfast.client.transport import Transport
from holdfast.retry import testing_mode
from holdfast.testing.ephemeral_pki import EphemeralCA, write_key_pair

LOOPBACK = "127.0.0.1"


class Peer:
    """An HTTPS server in a thread; `answers` maps a path to what is done with a request for it."""

    def __init__(self, folder):
        self.folder = folder
        self.authority = EphemeralCA()
        self.client = self.authority.issue("client")
        self.seen = []
        self.answers = {}
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self.port = 0

    def __enter__(self):
        self._thread.start()
        self._run(self._start())
        return self

    def __exit__(self, *_):
        self._run(self._runner.cleanup())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def access(self, **changes):
        values = {
            "gateway": "dev",
            "url": f"https://{LOOPBACK}:{self.port}",
            "ca": self.authority.certificate,
            "certificate": self.client.certificate,
            "key": self.client.key,
        }
        return GatewayEndpoint(**(values | changes))

    def _run(self, work):
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(30)

    async def _start(self):
        certificate, key = write_key_pair(self.authority.issue("server", server=True), self.folder, "server")
        tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        tls.load_cert_chain(certificate, key)
        tls.load_verify_locations(cadata=self.authority.certificate.decode())
        tls.verify_mode = ssl.CERT_REQUIRED
        app = web.Application(client_max_size=0)
        app.router.add_route("*", "/{tail:.*}", self._answer)
        self._runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=1)
        await self._runner.setup()
        site = web.TCPSite(self._runner, LOOPBACK, 0, ssl_context=tls)
        await site.start()
        self.port = site._server.sockets[0].getsockname()[1]

    async def _answer(self, request):
        self.seen.append(f"{request.method} {request.path_qs}")
        return await self.answers[request.path](request)


@asynccontextmanager
async def open_transport(resolve_endpoint):
    transport = Transport(resolve_endpoint)
    try:
        yield transport
    finally:
        await transport.close()


@pytest.fixture(autouse=True)
def own_home(tmp_path_factory, monkeypatch):
    """Downloads are recorded here."""
    home = tmp_path_factory.mktemp("home")
    monkeypatch.setenv("HOLDFAST_HOME", str(home))
    return home


@pytest.fixture
def fake_server(tmp_path):
    with Peer(tmp_path) as started:
        yield started


@pytest.fixture
def no_sleep():
    with testing_mode():
        yield
