"""The controller: routes events to the cache and the work queue, and keys to the reconciler of their kind.

Watch events, lists and responses to writes take the same path. Events that do not change the cache enqueue
nothing.
"""

from __future__ import annotations

import asyncio
import logging
import time
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Protocol

from holdfast.api import ConditionType
from holdfast.controller.cache import ObjectCache, object_key, resource_version
from holdfast.controller.event_handlers import RECONCILED_KINDS, affected_keys
from holdfast.controller.executor import REQUEUE_SOON, ActionExecutor
from holdfast.controller.metrics import ControllerMetrics
from holdfast.controller.published_metrics import PublishedTelemetry
from holdfast.controller.reconcilers import (
    REQUEUE_UNWATCHED,
    SandboxClaimReconciler,
    SandboxReconciler,
    SandboxTemplateReconciler,
    WarmPoolReconciler,
)
from holdfast.controller.workqueue import WorkQueue
from holdfast.errors import HoldfastError, ObjectConflictError
from holdfast.retry import exponential, random_fraction
from holdfast.sandbox import (
    CLUSTER_DOMAIN,
    DEFAULT_LABEL_DOMAINS,
    controller_of,
    has_condition,
    largest_disk,
    seconds_until_claim_expiry,
    seconds_until_shutdown,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterator

    from holdfast.controller.cache import ObjectKey
    from holdfast.kube import AsyncObjects

_MAX_TRACKED_CONFLICTS = 4096
_CONFLICT_BACKOFF = exponential(REQUEUE_SOON, cap=REQUEUE_UNWATCHED, jitter=0.0)
_SECONDS_UNTIL_EXPIRY = {
    "Sandbox": seconds_until_shutdown,
    "SandboxClaim": seconds_until_claim_expiry,
}

log = logging.getLogger("holdfast.controller")


class Reconciler(Protocol):
    """Reconciles the objects of one kind."""

    async def reconcile(self, obj: dict[str, Any], /) -> float | None:
        """Reconcile once; returns the seconds until the next reconciliation, or None."""


class Controller:
    """One cache, one work queue and the reconcilers."""

    def __init__(
        self,
        objects: AsyncObjects,
        *,
        workers: int = 64,
        enforces_policies: bool = True,
        label_domains: tuple[str, ...] = DEFAULT_LABEL_DOMAINS,
        rejects_policy_labels: bool = False,
        cluster_domain: str = CLUSTER_DOMAIN,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        # One event loop runs all callers, and code between two awaits is atomic: the cache, the queue and
        # `reserved` need no lock.
        self.cache, self.metrics, self._clock = ObjectCache(), ControllerMetrics(), clock
        self._telemetry = PublishedTelemetry(self.cache, objects, self.metrics.registry, clock)
        executor = ActionExecutor(
            self.cache,
            objects,
            on_write=self._store,
            count_write=lambda verb: self.metrics.writes.labels(verb).inc(),
            telemetry=self._telemetry,
        )
        # Sandboxes that an adoption or deletion in progress uses: two reconcilers must not take the same one.
        reserved: set[ObjectKey] = set()
        self._templates = SandboxTemplateReconciler(self.cache, executor, self._enqueue)
        self._sandboxes = SandboxReconciler(
            self.cache,
            executor,
            clock,
            enforces_policies=enforces_policies,
            cluster_domain=cluster_domain,
            unprotected_templates=self._templates.unprotected_templates,
        )
        self._reconcilers: dict[str, Reconciler] = {
            "Sandbox": self._sandboxes,
            "SandboxTemplate": self._templates,
            "SandboxWarmPool": WarmPoolReconciler(self.cache, executor, clock, reserved),
            "SandboxClaim": SandboxClaimReconciler(
                self.cache,
                executor,
                clock,
                reserved,
                self._defer_events,
                label_domains,
                rejects_policy_labels,
            ),
        }
        self._queue = WorkQueue(self._reconcile, workers=workers, on_failure=self._on_failure)
        self._enqueued_at: dict[Hashable, float] = {}
        self._last_errors: dict[Hashable, str] = {}
        self._conflicts: dict[ObjectKey, int] = {}
        self._deferred: dict[ObjectKey, set[ObjectKey]] = {}
        self.metrics.add_gauge("queue", "Keys in the work queue.", lambda: len(self._queue))
        self.metrics.add_gauge("objects", "Objects in the cache.", lambda: len(self.cache))

    async def run(self) -> None:
        """Reconcile enqueued objects until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._queue.run())
            group.create_task(self._telemetry.run())

    def on_update(self, obj: dict[str, Any]) -> None:
        """Handle an ADDED or MODIFIED event."""
        self.metrics.events.labels(obj["kind"]).inc()
        self._store(obj)

    def on_delete(self, obj: dict[str, Any]) -> None:
        """Handle a DELETED event."""
        self.metrics.events.labels(obj["kind"]).inc()
        self._remove(obj)

    def on_listed(self, obj: dict[str, Any], *, is_initial: bool) -> None:
        """Handle an object of a list; changes are corrections, except in the initial list."""
        if self._store(obj) and not is_initial:
            self.metrics.resync_corrections.labels(obj["kind"], "updated").inc()

    def prune_missing(
        self, kind: str, namespace: str | None, present_uids: set[str], *, list_version: int
    ) -> None:
        """Remove the objects of a kind that a list does not contain and that are not newer than the list."""
        # Iterate over a copy: `_remove` changes the index. An object that is newer than the list was written
        # after it, so its absence from the list proves nothing.
        for obj in list(self.cache.iter_kind(kind)):
            metadata = obj["metadata"]
            if (
                namespace in (None, metadata["namespace"])
                and metadata["uid"] not in present_uids
                and resource_version(obj) <= list_version
            ):
                self._remove(obj)
                self.metrics.resync_corrections.labels(kind, "removed").inc()

    def update_nodes(self, nodes: list[dict[str, Any]]) -> None:
        """Update the largest disk, which bounds the size of PVCs."""
        before, self._sandboxes.largest_disk = self._sandboxes.largest_disk, largest_disk(nodes)
        if self._sandboxes.largest_disk == before:
            return
        for sandbox in self.cache.iter_kind("Sandbox"):
            if sandbox["spec"].get("volumeClaimTemplates") and not has_condition(
                sandbox, ConditionType.READY
            ):
                # Its PVC may have been larger than every disk; nodes are not watched.
                self._enqueue(object_key(sandbox))

    def _store(self, obj: dict[str, Any], writer_key: ObjectKey | None = None) -> bool:
        """Store an object and enqueue the affected keys, except that of the reconciler that wrote it.

        Returns:
            Whether the cache changed.
        """
        obj["metadata"].pop("managedFields", None)  # half of an object's size, and unused
        before = self.cache.get(*object_key(obj))
        if not self.cache.put(obj):
            return False
        keys = set(affected_keys(obj, self.cache))
        if before is not None and controller_of(before) != controller_of(obj):
            # The previous owner must react too: a warm pool replaces an adopted sandbox.
            keys.update(affected_keys(before, self.cache))
        deferred = self._deferred.get(object_key(obj))
        for key in keys:
            # A reconciler's own write must not enqueue it again. A response can also contain a concurrent
            # change of another client, whose watch event is then ignored: a writer must requeue itself.
            if key == writer_key:
                continue
            if deferred is None:
                self._enqueue(key)
            else:
                deferred.add(key)
        return True

    @contextmanager
    def _defer_events(self, key: ObjectKey) -> Iterator[None]:
        """Collect the keys that events of this object affect, and enqueue them when the context ends."""
        self._deferred[key] = set()
        try:
            yield
        finally:
            # After an error or a cancellation too: the cache has changed already, and a repeated event
            # enqueues nothing.
            for deferred in self._deferred.pop(key):
                self._enqueue(deferred)

    def _remove(self, obj: dict[str, Any]) -> None:
        keys = list(affected_keys(obj, self.cache))
        self.cache.delete(obj)
        own = object_key(obj)
        for key in keys:
            if key != own:
                self._enqueue(key)
        # The cache may already have a successor of the same name: its timer and failure count must stay.
        if own[0] in RECONCILED_KINDS and self.cache.get(*own) is None:
            self._queue.forget(own)
            self._last_errors.pop(own, None)
            if own[0] == "SandboxTemplate":
                self._templates.forget(obj)

    def _enqueue(self, key: ObjectKey) -> None:
        self._enqueued_at.setdefault(key, time.monotonic())
        self._queue.add(key)

    async def _reconcile(self, key: Any) -> float | None:
        """Reconcile one object; returns the seconds until the next reconciliation, or None."""
        started, kind = time.monotonic(), key[0]
        enqueued_at = self._enqueued_at.pop(key, None)
        if enqueued_at is not None:
            self.metrics.queue_duration.labels(kind).observe(started - enqueued_at)
        # Read the object now, not when its key was added: one reconciliation handles all events until this
        # moment.
        obj = self.cache.get(*key)
        requeue_after = None if obj is None else await self._reconcile_object(key, obj)
        self._last_errors.pop(key, None)
        self.metrics.reconciles.labels(kind, "ok").inc()
        self.metrics.reconcile_duration.labels(kind).observe(time.monotonic() - started)
        return requeue_after

    async def _reconcile_object(self, key: ObjectKey, obj: dict[str, Any]) -> float | None:
        """Run the reconciler of a kind. A conflict ends it: the change that caused it enqueues the next run.

        That change usually arrives within milliseconds. The backoff is for a change that is not watched.
        """
        try:
            requeue_after = await self._reconcilers[key[0]].reconcile(obj)
        except ObjectConflictError:
            if key[0] == "Sandbox":
                await self._sandboxes.refresh_dependents(obj)
            if len(self._conflicts) > _MAX_TRACKED_CONFLICTS:
                self._conflicts.clear()
            conflicts = self._conflicts[key] = self._conflicts.get(key, 0) + 1
            self._enqueue_at_expiry(key)
            return _CONFLICT_BACKOFF.delay(conflicts, 0.0, random_fraction)
        self._conflicts.pop(key, None)
        return requeue_after

    def _enqueue_at_expiry(self, key: ObjectKey) -> None:
        """Enqueue an object for the moment when it expires: a backoff must not delay the expiry."""
        obj = self.cache.get(*key)
        until_expiry = _SECONDS_UNTIL_EXPIRY.get(key[0])
        if obj is None or until_expiry is None:
            return
        if seconds := until_expiry(obj, self._clock()):
            self._queue.add(key, delay=seconds)

    def _on_failure(self, key: Any, error: Exception) -> None:
        kind, namespace, name = key
        self.metrics.reconciles.labels(kind, "failed").inc()
        self._enqueue_at_expiry(key)
        if isinstance(error, HoldfastError):
            log.warning("%s %s/%s: %s", kind, namespace, name, error.message)
            return
        # Log the traceback once: retries fail at the same place.
        text = repr(error)
        trace = None if text == self._last_errors.get(key) else error
        self._last_errors[key] = text
        log.error("%s %s/%s: %s", kind, namespace, name, text, exc_info=trace)
