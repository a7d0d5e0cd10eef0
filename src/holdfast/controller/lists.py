"""Everything that is there, asked for as lists: at the start, and now and then against what watches missed.

A watch that could not be resumed tells of what is there, and not of what went meanwhile: only a list shows
that. Not here: the watches (feed.py).
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING

from holdfast.controller.watched import WATCHED
from holdfast.errors import ClusterRefusedError
from holdfast.retry import clock

if TYPE_CHECKING:
    from collections.abc import Sequence

    from holdfast.controller.desk import Desk
    from holdfast.controller.watched import Kind
    from holdfast.kube import AsyncObjects

CHUNK = 100
"""So few at once that reading them holds nobody up for long."""
EVERY = 120.0
SOON = 3.0
"""After a watch began anew: by then it has told what it knows."""


class Lists:
    """Lists of all watched kinds, compared with what the desk knows."""

    def __init__(self, objects: AsyncObjects, desk: Desk, namespaces: Sequence[str]) -> None:
        self._objects, self._desk = objects, desk
        self._namespaces: Sequence[str | None] = tuple(namespaces) or (None,)
        self._wanted = asyncio.Event()

    async def all(self) -> None:
        """Know everything that is there now, and nothing else."""
        await self._disks()
        for kind in WATCHED:
            for namespace in self._namespaces:
                await self._list(kind, namespace)

    def soon(self) -> None:
        """Ask for all lists again shortly."""
        self._wanted.set()

    async def run(self) -> None:
        """Compare now and then, until cancelled."""
        while True:
            if await clock.apause(EVERY, self._wanted):
                await clock.apause(SOON)
                self._wanted.clear()
            await self.all()

    async def _disks(self) -> None:
        """Not everybody may ask for nodes; then claims of any size are tried."""
        with suppress(ClusterRefusedError):
            self._desk.disks((await self._objects.list("Node", chunk=CHUNK)).items)

    async def _list(self, kind: Kind, namespace: str | None) -> None:
        listed = await self._objects.list(
            kind.kind, namespace=namespace, api_version=kind.api_version, labels=kind.labels, chunk=CHUNK
        )
        there: set[str] = set()
        for found in listed.items:
            there.add(found["metadata"]["uid"])
            self._desk.listed(found)
        self._desk.missing(kind.kind, namespace, there, as_of=int(listed.version))
