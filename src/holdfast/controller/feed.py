"""Watches: each change of an object that matters is brought to the desk.

One connection for each kind and namespace, resumed where it ended; where the server no longer knows that
place, a list tells what is there and what is gone. Not here: what a change means (desk.py).
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Any

from holdfast.controller.watched import WATCHED
from holdfast.errors import TemporaryError
from holdfast.retry import Policy, exponential

if TYPE_CHECKING:
    from holdfast.controller.desk import Desk
    from holdfast.controller.lists import Lists
    from holdfast.controller.watched import Kind
    from holdfast.kube import AsyncObjects


class Feed:
    """All watches, from where the lists ended; an error that does not pass ends them all."""

    def __init__(self, objects: AsyncObjects, desk: Desk, lists: Lists, *, stop: asyncio.Event) -> None:
        self._objects, self._desk, self._lists = objects, desk, lists
        self._policy = Policy(
            attempts=None, stop=stop, backoff=exponential(0.2, cap=10.0), retry_on=TemporaryError
        )

    async def run(self) -> None:
        """Watch until cancelled."""
        async with asyncio.TaskGroup() as group:
            for kind in WATCHED:
                for namespace in self._lists.namespaces:
                    group.create_task(self._follow(kind, namespace))

    async def _follow(self, kind: Kind, namespace: str | None) -> None:
        watch = _Watch(self._objects, self._desk, kind, namespace, self._lists.versions[kind, namespace])
        while True:
            # A connection that had lasted begins a new count of failures.
            if not await self._policy.acall(watch.once):
                watch.version = await self._policy.acall(partial(self._lists.one, kind, namespace))


class _Watch:
    """One kind in one namespace, over all of its connections."""

    def __init__(
        self, objects: AsyncObjects, desk: Desk, kind: Kind, namespace: str | None, version: str
    ) -> None:
        self._objects, self._desk, self._kind, self._namespace = objects, desk, kind, namespace
        self.version = version

    async def once(self) -> bool:
        """Until the connection ends; False when only a list can tell what is there now."""
        return await self._objects.follow(
            self._kind.kind,
            self._told,
            version=self.version,
            namespace=self._namespace,
            api_version=self._kind.api_version,
            labels=self._kind.labels,
        )

    def _told(self, what: str, found: dict[str, Any]) -> None:
        if what == "DELETED":
            self._desk.gone(found)
        elif what != "BOOKMARK":
            self._desk.changed(found)
        self.version = found["metadata"]["resourceVersion"]
