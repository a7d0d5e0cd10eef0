"""The controller as one process: it waits for the Lease, learns what is there, then watches and looks.

It ends when it is asked to, or when it may no longer work: then it is started again from outside, and finds
everything in the cluster. Not here: the parts.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import socket
from typing import TYPE_CHECKING, Any

import msgspec

from holdfast.controller.desk import Desk
from holdfast.controller.feed import Feed
from holdfast.controller.health import Health
from holdfast.controller.lease import Lease
from holdfast.controller.lists import Lists
from holdfast.controller.session import hasten
from holdfast.controller.watched import CRDS, WATCHED
from holdfast.controller.writer import ClusterWriter
from holdfast.errors import HoldfastError, TemporaryError

if TYPE_CHECKING:
    from collections.abc import Coroutine

log = logging.getLogger("holdfast.controller")

_CRD_SECONDS = 600.0
_LET_GO_SECONDS = 2.0
_OTHER_CONNECTIONS = 4
"""the Lease's and the lists'"""


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """How a controller runs."""

    kubeconfig: str | None = None
    """None for the account of the pod that this runs in"""
    namespaces: tuple[str, ...] = ()
    """all where there is none"""
    lease_namespace: str = "default"
    lease_name: str = "holdfast-controller"
    identity: str = ""
    host: str = "0.0.0.0"  # noqa: S104 - the kubelet asks from outside the pod
    port: int = 8082
    workers: int = 16
    """writes at the same time, and connections that have to be made for them"""
    enforces_policies: bool = True
    """whether the cluster's network keeps to network policies"""


def run(options: Options) -> None:
    """Work until a signal comes; raises when it may no longer work."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    asyncio.run(work(options))


async def work(options: Options, stop: asyncio.Event | None = None) -> None:
    """The same in a loop that is there already."""
    stop = stop or _stopped_by_signals()
    async with await _client(options) as api:
        await _Process(api, options, stop).run()


class _Process:
    def __init__(self, api: Any, options: Options, stop: asyncio.Event) -> None:
        from holdfast.kube import AsyncObjects

        self._options, self._stop = options, stop
        self._objects = AsyncObjects(api)
        self._desk = Desk(
            ClusterWriter(self._objects),
            workers=options.workers,
            enforces_policies=options.enforces_policies,
        )
        self._health = Health(self._desk.metrics)
        self._lease = Lease(
            self._objects, options.lease_namespace, options.lease_name, options.identity or _identity()
        )
        self._desk.metrics.gauge(
            "holdfast_controller_leads", "Whether this one works.", lambda: float(self._lease.held)
        )

    async def run(self) -> None:
        await self._health.start(self._options.host, self._options.port)
        try:
            if await self._unless_stopped(self._served()) and await self._unless_stopped(self._led()):
                await self._work()
        finally:
            with contextlib.suppress(HoldfastError, TimeoutError):
                async with asyncio.timeout(_LET_GO_SECONDS):
                    await self._lease.let_go()
            await self._health.stop()

    async def _served(self) -> None:
        """Until the server knows the kinds that this is all about."""
        from holdfast.kube import condition

        for name in CRDS:
            await self._objects.wait(
                "CustomResourceDefinition", name, condition("Established"), deadline=_CRD_SECONDS
            )

    async def _led(self) -> None:
        self._health.state = "standing by"
        await self._lease.take()

    async def _work(self) -> None:
        lists = Lists(self._objects, self._desk, self._options.namespaces)
        keeping = asyncio.create_task(self._lease.keep())
        await lists.all()
        log.info("leading: %d objects are there", len(self._desk.cache))
        self._health.state = "leading"
        parts = {
            keeping: "the lease was lost",
            asyncio.create_task(self._desk.run()): "the looks ended",
            asyncio.create_task(lists.run()): "the lists ended",
            asyncio.create_task(
                Feed(self._objects, self._desk, lists, stop=self._stop).run()
            ): "the watches ended",
        }
        stopping = asyncio.create_task(self._stop.wait())
        done, _ = await asyncio.wait({stopping, *parts}, return_when=asyncio.FIRST_COMPLETED)
        for task in (stopping, *parts):
            task.cancel()
        await asyncio.gather(stopping, *parts, return_exceptions=True)
        if stopping in done or self._stop.is_set():
            return
        ended = next(task for task in parts if task in done)
        why = None if ended.cancelled() else ended.exception()
        if why is not None:
            log.error("%s: %s", parts[ended], type(why).__name__, exc_info=why)
        raise TemporaryError(f"the controller cannot go on: {parts[ended]}", cause=why) from why

    async def _unless_stopped(self, doing: Coroutine[Any, Any, None]) -> bool:
        """Do it, or leave it when it is time to stop; True when it was done."""
        task, stopping = asyncio.create_task(doing), asyncio.create_task(self._stop.wait())
        await asyncio.wait({task, stopping}, return_when=asyncio.FIRST_COMPLETED)
        stopping.cancel()
        if not task.done():
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            return False
        task.result()
        return not self._stop.is_set()


async def _client(options: Options) -> Any:
    from holdfast.kube import async_api_client
    from holdfast.kube.incluster import in_cluster_async_client

    given = options.kubeconfig
    api = await (async_api_client(given) if given else in_cluster_async_client())
    watches = len(WATCHED) * max(1, len(options.namespaces))
    hasten(api, connections=options.workers + watches + _OTHER_CONNECTIONS)
    return api


def _identity() -> str:
    """One that no other process has, and no later one of the same machine."""
    return f"{socket.gethostname()}_{os.getpid()}_{os.urandom(4).hex()}"


def _stopped_by_signals() -> asyncio.Event:
    stop, loop = asyncio.Event(), asyncio.get_running_loop()
    for each in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(each, stop.set)
    return stop
