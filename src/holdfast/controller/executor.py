"""Execute decided actions on the API server, and write status patches.

The cache learns each response immediately. A conflict ends the reconciliation that requested the write.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from holdfast.api import API_VERSION, ConditionType, SandboxReason
from holdfast.controller.cache import object_key, resource_version
from holdfast.sandbox import ActionTarget, Adopt, Create, Delete, Patch

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from holdfast.controller.cache import ObjectCache, ObjectKey
    from holdfast.kube import AsyncObjects
    from holdfast.sandbox import Action


def status_patch(old: Mapping[str, Any], new: Mapping[str, Any]) -> dict[str, Any]:
    """Return the merge patch from one status to another; lists are replaced, removed keys become null."""
    patch: dict[str, Any] = {}
    for key, value in new.items():
        before = old.get(key)
        if isinstance(value, dict) and isinstance(before, dict):
            if inner := status_patch(before, value):
                patch[key] = inner
        elif before != value:
            patch[key] = value
    patch.update({key: None for key in old if key not in new})
    return patch


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


_PROGRESS_FIELDS = frozenset({"nodeName", "podIPs", ConditionType.POD_SCHEDULED.value})
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


REQUEUE_NOW = 0.0
"""Reconcile again immediately: the result is in the cache, and more actions follow from it."""
REQUEUE_SOON = 0.05
"""Delay after a conflict, in case no watch event reports the conflicting change."""


class ObjectWriter(Protocol):
    """Write access to the API server; each method returns the object after the write."""

    async def create(self, manifest: dict[str, Any]) -> dict[str, Any]: ...

    async def patch(self, target: ActionTarget, patch: dict[str, Any]) -> dict[str, Any] | None: ...

    async def patch_status(self, target: ActionTarget, patch: dict[str, Any]) -> dict[str, Any] | None: ...

    async def delete(self, target: ActionTarget, propagation: str | None, version: str | None) -> bool: ...

    async def read(self, kind: str, namespace: str, name: str) -> dict[str, Any] | None: ...


class ActionExecutor:
    """Executes the writes of all reconcilers.

    Args:
        cache: Receives deletions.
        writer: The API server.
        on_write: Receives each response, with the key of the reconciled object.
        count_write: Counts writes by verb.
    """

    def __init__(
        self,
        cache: ObjectCache,
        writer: ObjectWriter,
        *,
        on_write: Callable[[dict[str, Any], ObjectKey], bool],
        count_write: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._cache, self._writer, self._count_write = cache, writer, count_write
        self.on_write = on_write

    async def read(self, kind: str, namespace: str, name: str) -> dict[str, Any] | None:
        """Read an object from the API server."""
        return await self._writer.read(kind, namespace, name)

    async def execute(self, actions: Sequence[Action], reconciled: dict[str, Any]) -> bool:
        """Execute actions in order; returns whether the cache has changed since the decision."""
        changed = False
        for action in actions:
            self._count_write(type(action).__name__.lower())
            match action:
                case Create(manifest=manifest):
                    self.on_write(await self._writer.create(manifest), object_key(reconciled))
                    changed = True
                case Patch(target=target, patch=patch) | Adopt(target=target, patch=patch):
                    before = self._cache.get(target.kind, target.namespace, target.name)
                    obj = await self._writer.patch(target, patch)
                    changed |= self._record_response(obj, target, reconciled) or _is_newer(obj, before)
                case Delete(target=target, propagation=propagation, resource_version=version):
                    if not await self._writer.delete(target, propagation, version):
                        changed |= self._record_response(None, target, reconciled)
        return changed

    async def write_status(self, obj: dict[str, Any], status: dict[str, Any] | None) -> bool:
        """Write the changed part of a status; returns whether there was any."""
        patch = {} if status is None else status_patch(obj.get("status") or {}, status)
        if not patch:
            return False
        self._count_write("status")
        target = ActionTarget.from_object(obj)
        self._record_response(await self._writer.patch_status(target, {"status": patch}), target, obj)
        return True

    def _record_response(
        self, response: dict[str, Any] | None, target: ActionTarget, reconciled: dict[str, Any]
    ) -> bool:
        """Store the response to a write; without a response the object no longer exists."""
        if response is not None:
            return self.on_write(response, object_key(reconciled))
        known = self._cache.get(target.kind, target.namespace, target.name)
        return known is not None and known["metadata"]["uid"] == target.uid and self._cache.evict(known)


def _is_newer(obj: dict[str, Any] | None, before: dict[str, Any] | None) -> bool:
    return obj is not None and before is not None and resource_version(obj) > resource_version(before)


class KubeObjectWriter:
    """`ObjectWriter` for a cluster."""

    def __init__(self, objects: AsyncObjects) -> None:
        self._objects = objects

    async def create(self, manifest: dict[str, Any]) -> dict[str, Any]:
        return await self._objects.create(manifest)

    async def patch(self, target: ActionTarget, patch: dict[str, Any]) -> dict[str, Any] | None:
        return await self._patch(target, patch, None)

    async def patch_status(self, target: ActionTarget, patch: dict[str, Any]) -> dict[str, Any] | None:
        return await self._patch(target, patch, "status")

    async def delete(self, target: ActionTarget, propagation: str | None, version: str | None) -> bool:
        result = await self._objects.delete(
            target.kind,
            target.name,
            namespace=target.namespace,
            api_version=target.api_version,
            uid=target.uid,
            propagation=propagation,
            resource_version=version,
        )
        return result.effect == "deleted"

    async def read(self, kind: str, namespace: str, name: str) -> dict[str, Any] | None:
        api_version = API_VERSION if kind == "Sandbox" else None
        return await self._objects.get(kind, name, namespace=namespace, api_version=api_version)

    async def _patch(
        self, target: ActionTarget, patch: dict[str, Any], subresource: str | None
    ) -> dict[str, Any] | None:
        return await self._objects.patch(
            target.kind,
            target.name,
            patch,
            namespace=target.namespace,
            api_version=target.api_version,
            uid=target.uid,
            subresource=subresource,
        )
