"""Everything that is there, asked for as lists: at the start, and now and then against what watches missed.

Only a list shows what went while nobody watched. Not here: the watches (feed.py).
"""

from __future__ import annotations

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


class Lists:
    """Lists of all watched kinds, compared with what the desk knows."""

    def __init__(self, objects: AsyncObjects, desk: Desk, namespaces: Sequence[str]) -> None:
        self._objects, self._desk = objects, desk
        self.namespaces: Sequence[str | None] = tuple(namespaces) or (None,)
        self.versions: dict[tuple[Kind, str | None], str] = {}
        """what the last list of each kind was a list of; what came later, watches tell of"""

    async def all(self) -> None:
        """Know everything that is there now, and nothing else."""
        await self._disks()
        for kind in WATCHED:
            for namespace in self.namespaces:
                await self.one(kind, namespace)

    async def run(self) -> None:
        """Compare now and then, until cancelled."""
        while True:
            await clock.apause(EVERY)
            await self.all()

    async def _disks(self) -> None:
        """Not everybody may ask for nodes; then claims of any size are tried."""
        with suppress(ClusterRefusedError):
            self._desk.disks((await self._objects.list("Node", chunk=CHUNK)).items)

    async def one(self, kind: Kind, namespace: str | None) -> str:
        """Know what is there of one kind; the version of that moment."""
        listed = await self._objects.list(
            kind.kind, namespace=namespace, api_version=kind.api_version, labels=kind.labels, chunk=CHUNK
        )
        there: set[str] = set()
        for found in listed.items:
            there.add(found["metadata"]["uid"])
            self._desk.listed(found)
        self._desk.missing(kind.kind, namespace, there, as_of=int(listed.version))
        self.versions[kind, namespace] = listed.version
        return listed.version
