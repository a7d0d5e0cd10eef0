"""The controller process: leader election, initial list, watches, and the health endpoints.

It exits when it receives a signal or loses the Lease. The kubelet then restarts it, and all state is in the
cluster.

Endpoints: /healthz (the process responds), /readyz (leading or standing by), /metrics (Prometheus).
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import socket
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

import msgspec
from aiohttp import web
from prometheus_client import CONTENT_TYPE_LATEST

from holdfast.api import PUBLISHED_NAMESPACE
from holdfast.controller.controller import Controller
from holdfast.controller.informer import CRD_NAMES, WATCHED_RESOURCES, Informer
from holdfast.controller.leader_election import LEASE_NAME, LeaderElector
from holdfast.errors import HoldfastError, PortInUseError, TemporaryError
from holdfast.kube import AsyncObjects, async_api_client, condition, in_cluster_async_client
from holdfast.sandbox import CLUSTER_DOMAIN, DEFAULT_LABEL_DOMAINS

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Collection

    from holdfast.controller.metrics import ControllerMetrics


@contextlib.asynccontextmanager
async def serve_health(
    host: str, port: int, metrics: ControllerMetrics, state: Callable[[], str]
) -> AsyncIterator[None]:
    """Serve the health endpoints while the block runs.

    Args:
        host: Address to listen on.
        port: Port to listen on.
        metrics: Metrics of the controller.
        state: Returns `starting`, `standing by` or `leading`.

    Raises:
        PortInUseError: the address or the port cannot be used.
    """

    async def alive(_: web.Request) -> web.Response:
        return web.Response(text="ok\n")

    async def ready(_: web.Request) -> web.Response:
        # A process that stands by is ready: otherwise a rollout with several replicas would never complete.
        return web.Response(text=f"{state()}\n", status=503 if state() == "starting" else 200)

    async def scrape(_: web.Request) -> web.Response:
        return web.Response(body=metrics.encode(), headers={"Content-Type": CONTENT_TYPE_LATEST})

    app = web.Application()
    app.add_routes([web.get("/healthz", alive), web.get("/readyz", ready), web.get("/metrics", scrape)])
    # aiohttp must not handle signals: it would end the event loop before the Lease is released.
    runner = web.AppRunner(app, access_log=None, handle_signals=False, shutdown_timeout=1.0)
    await runner.setup()
    try:
        await web.TCPSite(runner, host, port).start()
    except OSError as error:
        await runner.cleanup()
        raise PortInUseError(
            f"port {port} on {host}: {error.strerror or error}", hint="Choose another --host or --port."
        ) from error
    try:
        yield
    finally:
        await runner.cleanup()


def tune_client(api_client: Any, *, connections: int) -> None:
    """Tune a client for thousands of small requests to one server; call it before the first request.

    aiohttp reads ~/.netrc in a thread and looks up a proxy before each request: a pod has neither.
    Connections are limited to the number in use, because a TLS handshake costs more than a request.
    """
    configuration, rest = api_client.configuration, api_client.rest_client
    if not rest.proxy:
        rest.proxy = environment_proxy(str(configuration.host))
    configuration.client_session_kwargs = {"trust_env": False}
    rest.maxsize = connections


def environment_proxy(url: str) -> str | None:
    """Return the proxy that the environment sets for a URL."""
    parts = urlsplit(url)
    return None if proxy_bypass(parts.hostname or "") else getproxies().get(parts.scheme)


log = logging.getLogger("holdfast.controller")

_CRD_TIMEOUT = 600.0
# Well below the pod's termination grace period of 10 s, after which the kubelet kills the process.
_RELEASE_TIMEOUT = 2.0
_FIELD_MANAGER = "sandbox-controller"
_EXTRA_CONNECTIONS = 4
"""for the Lease and the lists"""


class ControllerOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Options of `holdfast controller run`."""

    kubeconfig: str | None = None
    """None: the ServiceAccount of the pod"""
    namespaces: tuple[str, ...] = ()
    """namespaces to watch; all if empty"""
    lease_namespace: str = PUBLISHED_NAMESPACE
    identity: str = ""
    host: str = "0.0.0.0"  # noqa: S104 (the kubelet probes from outside the pod)
    port: int = 8082
    workers: int = 16
    """concurrent reconciliations, each with its own connection"""
    enforces_policies: bool = True
    """whether the cluster enforces network policies"""
    cluster_domain: str = CLUSTER_DOMAIN
    """domain of the cluster's Services"""
    rejects_policy_labels: bool = False
    """whether SandboxClaims may not add labels by which a managed network policy allows connections"""
    label_domains_file: str = "/etc/sandbox-config/allowed-label-domains"
    """domains of labels that SandboxClaims may add to pods; without the file, the published default"""


def run_controller(options: ControllerOptions) -> None:
    """Run until a signal arrives.

    Raises:
        TemporaryError: the Lease was lost, or a watch failed permanently.
    """
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    asyncio.run(_run(options))


async def _run(options: ControllerOptions) -> None:
    stop = _stop_event_on_signals()
    async with await _create_client(options) as api:
        await Manager(AsyncObjects(api), options, stop).run()


def read_label_domains(path: str) -> tuple[str, ...]:
    """Read the domains of a file, separated by commas or lines; the published default without any."""
    try:
        text = Path(path).read_text(encoding="utf-8")
    except FileNotFoundError:
        return DEFAULT_LABEL_DOMAINS
    return tuple(text.replace(",", " ").split()) or DEFAULT_LABEL_DOMAINS


class Manager:
    """Runs the controller while this process is the leader, and the health endpoints at all times."""

    def __init__(self, objects: AsyncObjects, options: ControllerOptions, stop: asyncio.Event) -> None:
        self._objects, self._options, self._stop = objects, options, stop
        self._controller = Controller(
            self._objects,
            workers=options.workers,
            enforces_policies=options.enforces_policies,
            cluster_domain=options.cluster_domain,
            rejects_policy_labels=options.rejects_policy_labels,
            label_domains=read_label_domains(options.label_domains_file),
        )
        self._state = "starting"
        # By default an identity that no other process has.
        identity = options.identity or f"{socket.gethostname()}_{os.getpid()}_{os.urandom(4).hex()}"
        self._elector = LeaderElector(self._objects, options.lease_namespace, LEASE_NAME, identity)
        self._controller.metrics.add_gauge(
            "leader", "1 if this process is the leader.", lambda: float(self._elector.is_leader)
        )

    async def run(self) -> None:
        """Run until the stop event is set; raises `TemporaryError` if the Lease is lost or a task ends."""
        options = self._options
        async with serve_health(options.host, options.port, self._controller.metrics, lambda: self._state):
            work, stop = asyncio.create_task(self._work()), asyncio.create_task(self._stop.wait())
            try:
                await asyncio.wait({work, stop}, return_when=asyncio.FIRST_COMPLETED)
                if not self._stop.is_set():
                    work.result()
            finally:
                # All work ends before the Lease is released: two controllers must not write at the same time.
                await _cancel_all((work, stop))
                # Best effort: a Lease that is not released expires.
                with contextlib.suppress(HoldfastError, TimeoutError):
                    async with asyncio.timeout(_RELEASE_TIMEOUT):
                        await self._elector.release()

    async def _work(self) -> None:
        """Wait for the CRDs and the Lease, then lead until the process stops or a task ends."""
        for name in CRD_NAMES:
            await self._objects.wait(
                "CustomResourceDefinition", name, condition("Established"), deadline=_CRD_TIMEOUT
            )
        self._state = "standing by"
        await self._elector.acquire()
        informer = Informer(self._objects, self._controller, self._options.namespaces, self._stop)
        # Renew during the list too: with many objects it can take longer than the Lease.
        tasks = {asyncio.create_task(self._elector.renew_until_lost()): "the lease was lost"}
        try:
            await informer.list_all()
            # If the Lease was lost during the list, `tasks` has only its renewal, which has ended.
            if self._elector.is_leader:
                log.info("leading: %d objects in the cache", len(self._controller.cache))
                self._state = "leading"
                tasks |= {
                    asyncio.create_task(self._controller.run()): "the work queue stopped",
                    asyncio.create_task(informer.run_resync()): "the periodic resync stopped",
                    asyncio.create_task(informer.run_watches()): "the watches stopped",
                }
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            await _cancel_all(tasks)
        if self._stop.is_set():
            return  # the stop event also ends the retries of the watches, with an error
        ended = next(task for task in tasks if task in done)
        error = None if ended.cancelled() else ended.exception()
        if error is not None:
            log.error("%s: %s", tasks[ended], type(error).__name__, exc_info=error)
        raise TemporaryError(f"the controller stopped: {tasks[ended]}", cause=error) from error


async def _cancel_all(tasks: Collection[asyncio.Task[Any]]) -> None:
    for task in tasks:
        task.cancel()
    # `cancel` only requests the end. The caller may release the Lease only when no task can write any more.
    await asyncio.gather(*tasks, return_exceptions=True)


async def _create_client(options: ControllerOptions) -> Any:
    kubeconfig = options.kubeconfig
    api = await (async_api_client(kubeconfig) if kubeconfig else in_cluster_async_client())
    watches = len(WATCHED_RESOURCES) * max(1, len(options.namespaces))
    tune_client(api, connections=options.workers + watches + _EXTRA_CONNECTIONS)
    # The API server records it as the field manager of the objects that the controller creates.
    api.user_agent = _FIELD_MANAGER
    return api


def _stop_event_on_signals() -> asyncio.Event:
    stop, loop = asyncio.Event(), asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    return stop
