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
import ssl
import tempfile
import threading
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from holdfast.errors import UsageError
from holdfast.testing.ephemeral_pki import EphemeralCA, write_key_pair, write_kubeconfig
from holdfast.testing.faults.listener import FaultSelector, Listener, Outage
from holdfast.testing.faults.request_log import RequestLog
from holdfast.testing.faults.upstream import Upstream, upstream_from_kubeconfig

if TYPE_CHECKING:
    from collections.abc import Coroutine, Iterable, Iterator
    from types import TracebackType

    from holdfast.testing.faults.rules import Rule

_PORT_COUNT = 65536


class FaultProxy:
    """Starts on entry and stops on exit; rules and outages can change at any time, from any thread."""

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
        self._rules: tuple[Rule, ...] = tuple(rules)
        self._selector = FaultSelector(self._rules, seed)
        self._thread: threading.Thread | None = None
        self.log = RequestLog()

    @property
    def url(self) -> str:
        return f"http{'s' if self._use_tls else ''}://127.0.0.1:{self._listener.port}"

    @property
    def port(self) -> int:
        return self._listener.port

    @property
    def kubeconfig(self) -> Path:
        """Path of the kubeconfig for clients of the proxy."""
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
        authority = EphemeralCA() if self._use_tls else None
        tls = None if authority is None else _server_tls_context(authority, self._directory)
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
                f"port: {self._requested_port} cannot be listened on: {failure[0]}", cause=failure[0]
            ) from failure[0]
        self._write_kubeconfig(authority)

    def _write_kubeconfig(self, ca: EphemeralCA | None) -> None:
        write_kubeconfig(
            self.kubeconfig,
            url=self.url,
            ca=ca.certificate if ca else None,
            client=ca.issue("fault-proxy-client") if ca else None,
            user=self._upstream.user,
        )

    async def _main(self, tls: ssl.SSLContext | None, started: threading.Event) -> None:
        self._loop = asyncio.get_running_loop()
        self._stopping = asyncio.Event()
        self._listener = Listener(self._upstream, self._selector, self.log, tls)
        await self._listener.open(self._requested_port)
        started.set()
        try:
            await self._stopping.wait()
        finally:
            await self._listener.close()

    def stop(self) -> None:
        """Close every connection and stop listening; does nothing if it is stopped."""
        if self._thread is not None and self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._stopping.set)
        self._clean_up()

    def _clean_up(self) -> None:
        if self._thread is not None:
            self._thread.join()
            self._thread = None
            shutil.rmtree(self._directory, ignore_errors=True)

    def replace_rules(self, *rules: Rule) -> None:
        """Replace the rules; their counters start at zero."""
        self._rules = rules
        self._selector.replace_rules(rules)

    @contextmanager
    def faults(self, *rules: Rule) -> Iterator[RequestLog]:
        """Use these rules within a block, and the previous ones after it."""
        earlier = self._rules
        self.replace_rules(*rules)
        try:
            yield self.log
        finally:
            self.replace_rules(*earlier)

    def outage(self, seconds: float, how: Outage = "refuse") -> None:
        """Start an outage of limited duration: connections are refused, or accepted, recorded and reset."""
        self._run_in_loop(self._listener.down(how, seconds))

    def down(self, how: Outage = "refuse") -> None:
        """Start an outage that lasts until `up`."""
        self._run_in_loop(self._listener.down(how))

    def up(self) -> None:
        """End an outage."""
        self._run_in_loop(self._listener.up())

    def _run_in_loop(self, work: Coroutine[Any, Any, None]) -> None:
        asyncio.run_coroutine_threadsafe(work, self._loop).result()


def _resolve_upstream(upstream: Upstream | Path | str, context: str | None) -> Upstream:
    if isinstance(upstream, Upstream):
        return upstream
    text = str(upstream)
    if text.startswith(("http://", "https://")):
        return Upstream(text, ssl.create_default_context() if text.startswith("https") else None)
    return upstream_from_kubeconfig(Path(upstream), context)


def _server_tls_context(ca: EphemeralCA, directory: Path) -> ssl.SSLContext:
    """Require client certificates: the proxy gives its clients the permissions of the administrator."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*write_key_pair(ca.issue("fault-proxy", server=True), directory, "serving"))
    context.load_verify_locations(cadata=ca.certificate.decode())
    context.verify_mode = ssl.CERT_REQUIRED
    context.set_alpn_protocols(["http/1.1"])
    return context
