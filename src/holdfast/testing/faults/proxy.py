"""The fault proxy as tests use it: a thread with an event loop in front of a real API server.

    lost = rule("reset-after", methods="POST", probability=0.3)
    with FaultProxy(kubeconfig, rules=[lost], seed=7) as proxy:
        config.load_kube_config(str(proxy.kubeconfig))

Clients reach it over TLS with a certificate of its own authority; towards the server it presents the client
certificate of the kubeconfig it was given, and passes tokens on. Loopback only.
Not here: what happens in the loop (`listener`).
"""

from __future__ import annotations

import asyncio
import shutil
import ssl
import tempfile
import threading
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from holdfast.errors import UsageError
from holdfast.testing.faults.decide import Decider
from holdfast.testing.faults.listener import Listener, Outage
from holdfast.testing.faults.log import RequestLog
from holdfast.testing.faults.upstream import Upstream, upstream_from_kubeconfig
from holdfast.testing.kubeconfigs import write_kubeconfig
from holdfast.testing.throwaway_pki import Authority, Pair

if TYPE_CHECKING:
    from collections.abc import Coroutine, Iterable, Iterator
    from types import TracebackType

    from holdfast.testing.faults.rules import Rule

_PORTS = 65536


class FaultProxy:
    """Starts on entry and stops on exit; rules and outages may change at any time, from any thread."""

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
        if not 0 <= port < _PORTS:
            raise UsageError(f"port: {port!r} is not between 0 and {_PORTS - 1}")
        self._upstream = _resolved(upstream, context)
        self._wanted_port = port
        self._with_tls = tls
        self._rules: tuple[Rule, ...] = tuple(rules)
        self._decider = Decider(self._rules, seed)
        self._thread: threading.Thread | None = None
        self.log = RequestLog()

    @property
    def url(self) -> str:
        return f"http{'s' if self._with_tls else ''}://127.0.0.1:{self._listener.port}"

    @property
    def port(self) -> int:
        return self._listener.port

    @property
    def kubeconfig(self) -> Path:
        """A kubeconfig that leads through the proxy."""
        return self._directory / "kubeconfig"

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def start(self) -> None:
        """Listen, and write the kubeconfig."""
        if self._thread is not None:
            raise UsageError("The fault proxy is running already.")
        self._directory = Path(tempfile.mkdtemp(prefix="holdfast-faults-"))
        authority = Authority("holdfast-fault-proxy") if self._with_tls else None
        tls = None if authority is None else _server_context(authority, self._directory)
        started = threading.Event()
        failure: list[BaseException] = []

        def run() -> None:
            try:
                asyncio.run(self._main(tls, started))
            except BaseException as error:  # noqa: BLE001 - handed to the thread that waits for the start
                failure.append(error)
                started.set()

        self._thread = threading.Thread(target=run, name="holdfast-fault-proxy", daemon=True)
        self._thread.start()
        started.wait()
        if failure:
            self._clean_up()
            raise UsageError(
                f"port: {self._wanted_port} cannot be listened on: {failure[0]}", cause=failure[0]
            ) from failure[0]
        self._write_kubeconfig(authority)

    def _write_kubeconfig(self, authority: Authority | None) -> None:
        certificate: bytes | None = None
        client: Pair | None = None
        if authority is not None:
            certificate, client = authority.certificate, authority.issue("fault-proxy-client")
        write_kubeconfig(
            self.kubeconfig, url=self.url, authority=certificate, client=client, user=self._upstream.user
        )

    async def _main(self, tls: ssl.SSLContext | None, started: threading.Event) -> None:
        self._loop = asyncio.get_running_loop()
        self._stopping = asyncio.Event()
        self._listener = Listener(self._upstream, self._decider, self.log, tls)
        await self._listener.open(self._wanted_port)
        started.set()
        try:
            await self._stopping.wait()
        finally:
            await self._listener.close()

    def stop(self) -> None:
        """Drop every connection and stop listening; harmless when it has stopped already."""
        if self._thread is not None and self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._stopping.set)
        self._clean_up()

    def _clean_up(self) -> None:
        if self._thread is not None:
            self._thread.join()
            self._thread = None
            shutil.rmtree(self._directory, ignore_errors=True)

    def replace_rules(self, *rules: Rule) -> None:
        """Put other rules in force; their counts begin anew."""
        self._rules = rules
        self._decider.replace(rules)

    @contextmanager
    def faults(self, *rules: Rule) -> Iterator[RequestLog]:
        """These rules for the time of a block, and the earlier ones after it."""
        earlier = self._rules
        self.replace_rules(*rules)
        try:
            yield self.log
        finally:
            self.replace_rules(*earlier)

    def outage(self, seconds: float, how: Outage = "refuse") -> None:
        """Begin an outage that ends by itself: connections are refused, or taken, recorded and reset."""
        self._in_loop(self._listener.down(how, seconds))

    def down(self, how: Outage = "refuse") -> None:
        """Begin an outage that lasts until `up`."""
        self._in_loop(self._listener.down(how))

    def up(self) -> None:
        """End an outage."""
        self._in_loop(self._listener.up())

    def _in_loop(self, work: Coroutine[Any, Any, None]) -> None:
        asyncio.run_coroutine_threadsafe(work, self._loop).result()


def _resolved(upstream: Upstream | Path | str, context: str | None) -> Upstream:
    if isinstance(upstream, Upstream):
        return upstream
    text = str(upstream)
    if text.startswith(("http://", "https://")):
        return Upstream(text, ssl.create_default_context() if text.startswith("https") else None)
    return upstream_from_kubeconfig(Path(upstream), context)


def _server_context(authority: Authority, directory: Path) -> ssl.SSLContext:
    """Clients must show a certificate of our authority: the proxy lends them the administrator's powers."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*authority.issue("fault-proxy", server=True).write(directory, "serving"))
    context.load_verify_locations(cadata=authority.certificate.decode())
    context.verify_mode = ssl.CERT_REQUIRED
    context.set_alpn_protocols(["http/1.1"])
    return context
