"""Execute decided actions on the API server, and write status patches.

The cache learns each response immediately. A conflict ends the reconciliation that requested the write.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec.structs import asdict

from holdfast.api import API_VERSION, EXTENSIONS_API_VERSION, ConditionType, SandboxReason
from holdfast.controller.cache import object_key, resource_version
from holdfast.sandbox import ActionTarget, Adopt, Create, Delete, Patch, merge_patch

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from holdfast.controller.cache import ObjectCache, ObjectKey
    from holdfast.controller.published_metrics import PublishedTelemetry
    from holdfast.kube import AsyncObjects
    from holdfast.sandbox import Action


def is_deferrable(old: Mapping[str, Any], new: Mapping[str, Any]) -> bool:
    """Return whether a status change can wait, because no client depends on it and it may soon change again.

    True for changed messages, and for the progress of a sandbox that is starting.
    """
    if not _is_starting(new):
        return bool(old) and _without_messages(old) == _without_messages(new)
    return not old or (
        _is_starting(old)
        and _without_messages(old, _PROGRESS_FIELDS) == _without_messages(new, _PROGRESS_FIELDS)
    )


_PROGRESS_FIELDS = frozenset(
    {"nodeName", "podIPs", "selector", ConditionType.POD_SCHEDULED.value, ConditionType.EXPLANATION.value}
)
"""fields that change while a sandbox starts; the final status contains them again"""


def _is_starting(status: Mapping[str, Any]) -> bool:
    rows = status.get("conditions") or ()
    return any(
        row["type"] == ConditionType.READY and row["reason"] == SandboxReason.DEPENDENCIES_NOT_READY
        for row in rows
    )


def _without_messages(status: Mapping[str, Any], excluded: frozenset[str] = frozenset()) -> dict[str, Any]:
    rows = [{**row, "message": ""} for row in status.get("conditions") or () if row["type"] not in excluded]
    return {**{key: value for key, value in status.items() if key not in excluded}, "conditions": rows}


_API_VERSIONS = {
    "Sandbox": API_VERSION,
    "SandboxClaim": EXTENSIONS_API_VERSION,
    "SandboxTemplate": EXTENSIONS_API_VERSION,
    "SandboxWarmPool": EXTENSIONS_API_VERSION,
}
REQUEUE_NOW = 0.0
"""Reconcile again immediately: the result is in the cache, and more actions follow from it."""
REQUEUE_SOON = 0.05
"""Delay after a conflict, in case no watch event reports the conflicting change."""


class ActionExecutor:
    """Executes the writes of all reconcilers.

    Args:
        cache: Receives deletions.
        objects: The API server.
        on_write: Receives each response, with the key of the reconciled object.
        count_write: Counts writes by verb.
        telemetry: Observes the writes that succeeded.
    """

    def __init__(
        self,
        cache: ObjectCache,
        objects: AsyncObjects,
        *,
        on_write: Callable[[dict[str, Any], ObjectKey], bool],
        count_write: Callable[[str], None],
        telemetry: PublishedTelemetry | None = None,
    ) -> None:
        self._cache, self._objects, self._count_write = cache, objects, count_write
        self.on_write, self._telemetry = on_write, telemetry

    async def read(self, kind: str, namespace: str, name: str) -> dict[str, Any] | None:
        """Read an object from the API server."""
        api_version = _API_VERSIONS.get(kind)
        return await self._objects.get(kind, name, namespace=namespace, api_version=api_version)

    async def execute(self, actions: Sequence[Action], reconciled: dict[str, Any]) -> bool:
        """Execute actions in order; returns whether the cache has changed since the decision."""
        changed = False
        # In order, and an error ends the sequence: after a crash or an error, the next reconciliation decides
        # from what exists then.
        for action in actions:
            self._count_write(type(action).__name__.lower())
            match action:
                case Create(manifest=manifest):
                    self.on_write(await self._objects.create(manifest), object_key(reconciled))
                    changed = True
                case Patch(target=target, patch=patch) | Adopt(target=target, patch=patch):
                    # The watch event of this write can reach the cache before the response. The version from
                    # before the request shows the change in that case too.
                    before = self._cache.get(target.kind, target.namespace, target.name)
                    obj = await self._objects.patch(patch=patch, **asdict(target))
                    changed |= self._record_response(obj, target, reconciled) or _is_newer(obj, before)
                case Delete(target=target, propagation=propagation, resource_version=version):
                    result = await self._objects.delete(
                        **asdict(target), propagation=propagation, resource_version=version
                    )
                    # A deleted object can exist until its grace period or its finalizers end: its watch event
                    # removes it from the cache. Until then it is marked, so that nothing deletes it again.
                    if result.effect == "absent":
                        changed |= self._record_response(None, target, reconciled)
                    else:
                        self._cache.mark_deleted(*target.key, uid=target.uid)
            if self._telemetry is not None:
                self._telemetry.on_action(action, reconciled)
        return changed

    async def write_status(self, obj: dict[str, Any], status: dict[str, Any] | None) -> bool:
        """Write a status if it has changed; returns whether it has."""
        if status is None or not merge_patch(obj.get("status") or {}, status):
            return False
        self._count_write("status")
        # The uid protects a successor of the same name. As published, only the status of a SandboxClaim also
        # requires the version: that of other kinds must not conflict with a change of the spec.
        target, patch = ActionTarget.from_object(obj), {"status": status}
        if obj["kind"] == "SandboxClaim":
            patch["metadata"] = {"resourceVersion": obj["metadata"]["resourceVersion"]}
        response = await self._objects.patch(patch=patch, subresource="status", **asdict(target))
        self._record_response(response, target, obj)
        if self._telemetry is not None:
            self._telemetry.on_status(obj, status)
        return True

    def report_held_sandboxes(self, pool: dict[str, Any], count: int) -> None:
        """Report how many unschedulable sandboxes a pool holds."""
        if self._telemetry is not None:
            self._telemetry.on_held_sandboxes(pool, count)

    def _record_response(
        self, response: dict[str, Any] | None, target: ActionTarget, reconciled: dict[str, Any]
    ) -> bool:
        """Store the response to a write; without a response the object no longer exists."""
        if response is not None:
            return self.on_write(response, object_key(reconciled))
        # Evict without a tombstone: a 404 has no version to record, and the watch reports the deletion.
        known = self._cache.get(target.kind, target.namespace, target.name)
        return known is not None and known["metadata"]["uid"] == target.uid and self._cache.evict(known)


def _is_newer(obj: dict[str, Any] | None, before: dict[str, Any] | None) -> bool:
    return obj is not None and before is not None and resource_version(obj) > resource_version(before)
