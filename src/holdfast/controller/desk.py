"""Where all news arrive: into the cache, and from there to whoever has to look.

Watches, lists and the answers to our own writes end here alike. An echo of what is known already is no news,
and wakes nobody. Not here: what a look does (looks.py), and where news come from (feed.py, lists.py).
"""

from __future__ import annotations

import logging
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from holdfast.controller.cache import Cache, key_of, version_of
from holdfast.controller.looks import Looks
from holdfast.controller.metrics import Metrics
from holdfast.controller.queue import Queue
from holdfast.controller.router import LOOKED_AT, touched
from holdfast.errors import HoldfastError
from holdfast.sandbox.disk import largest
from holdfast.sandbox.ownership import controller_of
from holdfast.sandbox.pool import is_ready

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterator

    from holdfast.controller.cache import Key
    from holdfast.controller.hands import Writer

log = logging.getLogger("holdfast.controller")


class Desk:
    """One cache, one queue and the looks between them."""

    def __init__(self, writer: Writer, *, workers: int = 64, enforces_policies: bool = True) -> None:
        self.cache, self.metrics = Cache(), Metrics()
        self._looks = Looks(
            self.cache,
            writer,
            told=self._written,
            counted=self.metrics.writes.add,
            held=self._held,
            wake=self._name,
            enforces_policies=enforces_policies,
        )
        self._queue = Queue(self._look, workers=workers, failed=self._failed)
        self._named_at: dict[Hashable, float] = {}
        self._troubles: dict[Hashable, str] = {}
        self._holding: dict[Key, set[Key]] = {}
        self.metrics.gauge("holdfast_controller_queue", "Objects that wait.", lambda: len(self._queue))
        self.metrics.gauge("holdfast_controller_objects", "Objects known.", lambda: len(self.cache))

    async def run(self) -> None:
        """Look at whatever has news, until cancelled."""
        await self._queue.run()

    def changed(self, found: dict[str, Any]) -> None:
        """A watch says that an object is there, like this."""
        self.metrics.events.add(found["kind"])
        self._put(found)

    def gone(self, found: dict[str, Any]) -> None:
        """A watch says that an object is gone."""
        self.metrics.events.add(found["kind"])
        self._drop(found)

    def listed(self, found: dict[str, Any]) -> None:
        """A list says that an object is there, like this."""
        if self._put(found):
            self.metrics.swept.add(found["kind"], "put")

    def missing(self, kind: str, namespace: str | None, there: set[str], *, as_of: int) -> None:
        """A list had just these: what we know beside them, and is not newer, is gone."""
        known = [each for each in self.cache.all(kind) if namespace in (None, each["metadata"]["namespace"])]
        for found in known:
            if found["metadata"]["uid"] not in there and version_of(found) <= as_of:
                self._drop(found)
                self.metrics.swept.add(kind, "dropped")

    def disks(self, nodes: list[dict[str, Any]]) -> None:
        """The nodes that are there: how large a claim can be at most."""
        if not self._looks.know_disk(largest(nodes)):
            return
        for sandbox in self.cache.all("Sandbox"):
            if sandbox["spec"].get("volumeClaimTemplates") and not is_ready(sandbox):
                # Its claim may have been larger than every disk, and no watch tells of disks.
                self._name(key_of(sandbox))

    def _put(self, found: dict[str, Any], by: Key | None = None) -> bool:
        found["metadata"].pop("managedFields", None)  # half of an object's size, and no business of ours
        before = self.cache.get(*key_of(found))
        if not self.cache.put(found):
            return False
        keys = set(touched(found, self.cache))
        if before is not None and controller_of(before) != controller_of(found):
            # Whoever had it has to know as well: a pool makes another one.
            keys.update(touched(before, self.cache))
        held = self._holding.get(key_of(found))
        for key in keys:
            if key == by:
                continue
            if held is None:
                self._name(key)
            else:
                held.add(key)
        return True

    @contextmanager
    def _held(self, key: Key) -> Iterator[None]:
        """Let nobody look because of this object for as long as this lasts; all of them do afterwards."""
        self._holding[key] = set()
        try:
            yield
        finally:
            for each in self._holding.pop(key):
                self._name(each)

    def _drop(self, found: dict[str, Any]) -> None:
        keys = list(touched(found, self.cache))
        self.cache.drop(found)
        own = key_of(found)
        for key in keys:
            if key != own:
                self._name(key)
        if own[0] in LOOKED_AT and self.cache.get(*own) is None:
            self._queue.forget(own)
            self._troubles.pop(own, None)

    def _written(self, found: dict[str, Any], by: Key) -> bool:
        """An answer to a write of a look: news for everybody but that look itself."""
        return self._put(found, by)

    def _name(self, key: Key) -> None:
        self._named_at.setdefault(key, time.monotonic())
        self._queue.add(key)

    async def _look(self, key: Any) -> float | None:
        began, kind = time.monotonic(), key[0]
        named_at = self._named_at.pop(key, None)
        if named_at is not None:
            self.metrics.waited.observe(began - named_at, kind)
        again_in = await self._looks.look(key)
        self._troubles.pop(key, None)
        self.metrics.looks.add(kind, "ok")
        self.metrics.took.observe(time.monotonic() - began, kind)
        return again_in

    def _failed(self, key: Any, error: Exception) -> None:
        kind, namespace, name = key
        self.metrics.looks.add(kind, "failed")
        if isinstance(error, HoldfastError):
            log.warning("%s %s/%s: %s", kind, namespace, name, error.message)
            return
        # Where it came from is told once: the look is repeated, and ends there each time.
        trouble, known = repr(error), self._troubles.get(key)
        trace = None if trouble == known else error
        self._troubles[key] = trouble
        log.error("%s %s/%s: %s", kind, namespace, name, trouble, exc_info=trace)
