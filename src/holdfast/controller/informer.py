"""Lists and watches that keep the cache current.

One watch per kind and namespace, resumed at the last resourceVersion. When that version has expired, a list
replaces the watch's history. A periodic list repairs what watches missed, such as deletions between two
watches.

Pods, Services and PVCs are selected by the tracking label. Network policies are not: those of the published
controller have no label.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple

from holdfast.api import API_VERSION, EXTENSIONS_API_VERSION, EXTENSIONS_GROUP, GROUP, NAME_HASH_LABEL
from holdfast.errors import ApiRequestRejectedError, TemporaryError
from holdfast.retry import Policy, clock, exponential

if TYPE_CHECKING:
    from collections.abc import Sequence

    from holdfast.controller.controller import Controller
    from holdfast.kube import AsyncObjects


class WatchedResource(NamedTuple):
    """A watched kind."""

    api_version: str
    kind: str
    label_selector: str | None = None


WATCHED_RESOURCES = (
    WatchedResource(EXTENSIONS_API_VERSION, "SandboxTemplate"),
    WatchedResource(EXTENSIONS_API_VERSION, "SandboxWarmPool"),
    WatchedResource(EXTENSIONS_API_VERSION, "SandboxClaim"),
    WatchedResource(API_VERSION, "Sandbox"),
    WatchedResource("networking.k8s.io/v1", "NetworkPolicy"),
    WatchedResource("v1", "Pod", NAME_HASH_LABEL),
    WatchedResource("v1", "PersistentVolumeClaim", NAME_HASH_LABEL),
    WatchedResource("v1", "Service", NAME_HASH_LABEL),
)
"""Owners come before their dependents, so that a full list finds every owner in the cache."""

CRD_NAMES = (
    f"sandboxes.{GROUP}",
    f"sandboxclaims.{EXTENSIONS_GROUP}",
    f"sandboxtemplates.{EXTENSIONS_GROUP}",
    f"sandboxwarmpools.{EXTENSIONS_GROUP}",
)

LIST_PAGE_SIZE = 100
"""Small pages keep the event loop responsive while they are decoded."""
RESYNC_INTERVAL = 120.0
_MAX_BACKOFF = 10.0


class Informer:
    """Keeps the cache of a controller current.

    Args:
        objects: The API server.
        controller: Receives the objects.
        namespaces: Namespaces to watch; all if empty.
        stop: Ends the retries of failed watches.
    """

    def __init__(
        self, objects: AsyncObjects, controller: Controller, namespaces: Sequence[str], stop: asyncio.Event
    ) -> None:
        self._objects, self._controller = objects, controller
        self._targets = [
            (resource, namespace) for resource in WATCHED_RESOURCES for namespace in namespaces or (None,)
        ]
        self._versions: dict[tuple[WatchedResource, str | None], str] = {}
        self._policy = Policy(
            attempts=None, stop=stop, backoff=exponential(0.2, cap=_MAX_BACKOFF), retry_on=TemporaryError
        )

    async def list_all(self) -> None:
        """Synchronise the cache with the API server."""
        await self._list_nodes()
        self._versions = {target: await self._list_resource(*target) for target in self._targets}

    async def run_resync(self) -> None:
        """Synchronise periodically, until cancelled."""
        # Watches continue meanwhile. The newer resourceVersion wins in the cache, so a list never undoes a
        # later event.
        while True:
            await clock.asleep(RESYNC_INTERVAL)
            await self.list_all()

    async def run_watches(self) -> None:
        """Watch until cancelled, from the versions of `list_all` on. A permanent error ends all watches."""
        async with asyncio.TaskGroup() as group:
            for target in self._targets:
                group.create_task(self._watch_resource(*target))

    async def _list_nodes(self) -> None:
        """Read the disk sizes of nodes; without permission PVCs of any size are tried."""
        with suppress(ApiRequestRejectedError):
            self._controller.update_nodes((await self._objects.list("Node", chunk_size=LIST_PAGE_SIZE)).items)

    async def _list_resource(self, resource: WatchedResource, namespace: str | None) -> str:
        """Synchronise one kind; returns the resourceVersion of the list."""
        listed = await self._objects.list(
            resource.kind,
            namespace=namespace,
            api_version=resource.api_version,
            label_selector=resource.label_selector,
            chunk_size=LIST_PAGE_SIZE,
        )
        for obj in listed.items:
            self._controller.on_listed(obj, is_initial=not self._versions)
        uids = {obj["metadata"]["uid"] for obj in listed.items}
        self._controller.prune_missing(
            resource.kind, namespace, uids, list_version=int(listed.resource_version)
        )
        return listed.resource_version

    async def _watch_resource(self, resource: WatchedResource, namespace: str | None) -> None:
        version = self._versions[resource, namespace]

        def on_event(event_type: str, obj: dict[str, Any]) -> None:
            nonlocal version
            # A bookmark carries only a version: it keeps the resume version of a quiet watch from expiring.
            if event_type == "DELETED":
                self._controller.on_delete(obj)
            elif event_type != "BOOKMARK":
                self._controller.on_update(obj)
            version = obj["metadata"]["resourceVersion"]

        async def watch_until_closed() -> bool:
            """Watch until the connection closes; returns False if the resourceVersion has expired."""
            started = clock.monotonic()
            try:
                return await self._objects.watch(
                    resource.kind,
                    on_event,
                    resource_version=version,
                    namespace=namespace,
                    api_version=resource.api_version,
                    label_selector=resource.label_selector,
                )
            except TemporaryError:
                # A connection that lasted ends the failure count, however it ended.
                if clock.monotonic() - started < _MAX_BACKOFF:
                    raise
                return True

        while True:
            # Each call starts a new failure count, and so a new backoff.
            if not await self._policy.acall(watch_until_closed):
                version = await self._policy.acall(self._list_resource, resource, namespace)
