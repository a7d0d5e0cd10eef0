"""Operations on warm pools: list, get, create once, scale, delete, and the watch of one pool."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import msgspec

from holdfast.api import (
    WARM_POOL_LABEL,
    Phase,
    PoolDeletionResult,
    PoolEventType,
    PoolList,
    PoolRequest,
    PoolView,
)
from holdfast.errors import ObjectConflictError
from holdfast.sandbox import name_hash, pool_manifest
from holdfast.server.errors import conflict, not_found
from holdfast.server.pools import presenters
from holdfast.server.sandboxes import list_extensions, template_of, unknown_template
from holdfast.server.streams import ObjectStream, encode_event

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

    from holdfast.server.namespace_client import NamespaceClient


class PoolService:
    """The warm pools of one gateway.

    Args:
        cluster: client for the namespace of the sandboxes.
    """

    def __init__(self, cluster: NamespaceClient) -> None:
        self._cluster = cluster

    async def list(self, limit: int, continue_token: str | None, selector: str | None) -> PoolList:
        """List one page of pools, without the states of single sandboxes."""
        page = await self._cluster.list_page("SandboxWarmPool", limit, continue_token, selector)
        listed = await list_extensions(self._cluster, "SandboxTemplate")
        templates = {template["metadata"]["name"]: template for template in listed}
        items = [presenters.present_pool(pool, templates.get(template_of(pool))) for pool in page.items]
        return PoolList(items=items, next=page.continue_token)

    async def get(self, name: str) -> PoolView:
        """Return one pool, with the sandboxes that were created from it.

        Raises:
            ApiError: 404 if it does not exist.
        """
        pool = await self._cluster.require("SandboxWarmPool", name)
        view, claims = await asyncio.gather(
            self._present(pool), list_extensions(self._cluster, "SandboxClaim")
        )
        return presenters.with_sandboxes(view, claims)

    async def create(self, request: PoolRequest) -> tuple[bool, PoolView]:
        """Create a pool, idempotently.

        Returns:
            Whether this call created it, and the pool.

        Raises:
            ApiError: 422 if the template does not exist; 409 if the name is taken by a pool that differs.
        """
        if await self._cluster.get("SandboxTemplate", request.template) is None:
            raise await unknown_template(self._cluster, request.template)
        manifest = pool_manifest(request, namespace=self._cluster.namespace)
        is_new, pool = False, await self._cluster.get("SandboxWarmPool", request.name)
        if pool is None:
            try:
                result = await self._cluster.objects.ensure(manifest)
            except ObjectConflictError:
                # Another request has created it meanwhile.
                pool = await self._cluster.require("SandboxWarmPool", request.name)
            else:
                is_new, pool = result.effect == "created", result.object
        _require_same(pool, manifest)
        return is_new, await self._present(pool)

    async def scale(self, name: str, size: int) -> PoolView:
        """Change the number of sandboxes that wait.

        Raises:
            ApiError: 404 if the pool does not exist.
        """
        pool = await self._cluster.require("SandboxWarmPool", name)
        if int(pool["spec"].get("replicas", 1)) != size:
            patched = await self._cluster.patch(pool, {"spec": {"replicas": size}})
            if patched is None:
                raise not_found("SandboxWarmPool", name)
            pool = patched
        return await self._present(pool)

    async def delete(self, name: str) -> PoolDeletionResult:
        """Delete a pool with the sandboxes that wait in it, and report those adopted by SandboxClaims.

        Raises:
            ApiError: 404 if it does not exist.
        """
        pool = await self._cluster.require("SandboxWarmPool", name)
        # The garbage collector deletes what the pool owns: a sandbox that was adopted has another owner.
        is_deleted = await self._cluster.delete(pool)
        # After the deletion: a sandbox that was adopted just before is reported too.
        claims = await list_extensions(self._cluster, "SandboxClaim")
        kept = [str(each["metadata"]["name"]) for each in claims if presenters.is_created_from(each, name)]
        return PoolDeletionResult(deleted=is_deleted, sandboxes=kept)

    async def watch(self, name: str) -> AsyncIterator[bytes]:
        """Return the event stream of a pool.

        Raises:
            ApiError: 404 if it does not exist.
        """
        pool = await self._cluster.require("SandboxWarmPool", name)
        selectors = {"SandboxWarmPool": None, "SandboxTemplate": None, "Sandbox": _member_selector(name)}
        stream = ObjectStream(self._cluster, _WatchedPool(pool), selectors)
        return stream.iter_events(await stream.list_objects())

    async def _present(self, pool: dict[str, Any]) -> PoolView:
        name = pool["metadata"]["name"]
        template, members = await asyncio.gather(
            self._cluster.get("SandboxTemplate", template_of(pool)),
            self._cluster.list_page("Sandbox", _MAX_EXAMINED, None, _member_selector(name)),
        )
        return presenters.present_pool(pool, template, members.items)


_MAX_EXAMINED = 50
"""Sandboxes that are searched for the reason why a pool is pending."""


def _member_selector(pool: str) -> str:
    return f"{WARM_POOL_LABEL}={name_hash(pool)}"


def _require_same(pool: Mapping[str, Any], manifest: Mapping[str, Any]) -> None:
    name = manifest["metadata"]["name"]
    if pool["metadata"].get("deletionTimestamp"):
        raise conflict("pool-deleting", f"pool {name}: being deleted", "Wait until it is deleted.")
    before, after = (presenters.present_pool(each, None) for each in (pool, manifest))
    fields = [
        field
        for field in ("size", "template", "update_strategy")
        if getattr(before, field) != getattr(after, field)
    ]
    if not fields:
        return
    values = [
        f"{field} is {getattr(before, field)}, requested is {getattr(after, field)}" for field in fields
    ]
    hint = "Choose another name, or delete the existing pool first."
    if fields == ["size"]:
        hint = f"Run `holdfast pool scale {name} {after.size}` to change its size."
    message = f"pool {name}: exists, and differs in {', '.join(fields)}: {'; '.join(values)}"
    raise conflict("pool-differs", message, hint)


class _WatchedPool:
    """One pool, its template and its sandboxes, and whether they have changed."""

    def __init__(self, pool: Mapping[str, Any]) -> None:
        self._uid = pool["metadata"]["uid"]
        self._objects: dict[str, Mapping[str, Any]] = {}
        self._sent: PoolView | None = None
        self._last = pool
        self.is_finished = False
        self.has_changes = asyncio.Event()

    def retain(self, uids: set[str]) -> None:
        """Forget the objects that a complete list did not contain."""
        self._objects = {uid: obj for uid, obj in self._objects.items() if uid in uids}
        self.has_changes.set()

    def update(self, obj: Mapping[str, Any]) -> None:
        """Take over a new or changed object."""
        self._objects[obj["metadata"]["uid"]] = obj
        self.has_changes.set()

    def remove(self, uid: str) -> None:
        """Forget an object that was deleted."""
        self._objects.pop(uid, None)
        self.has_changes.set()

    def take_changes(self) -> list[bytes]:
        """Return the event of the current state, unless the client has received it."""
        self.has_changes.clear()
        pool = self._objects.get(self._uid)
        if pool is None:
            self.is_finished = True
            last = msgspec.structs.replace(self._view(self._last), phase=Phase.DELETING)
            return [encode_event(PoolEventType.DELETED, last)]
        self._last = pool
        view = self._view(pool)
        if view == self._sent:
            return []
        self._sent = view
        return [encode_event(PoolEventType.STATE, view)]

    def _view(self, pool: Mapping[str, Any]) -> PoolView:
        by_kind: dict[str, list[Mapping[str, Any]]] = {}
        for obj in self._objects.values():
            by_kind.setdefault(obj["kind"], []).append(obj)
        name = template_of(pool)
        templates = [each for each in by_kind.get("SandboxTemplate", ()) if each["metadata"]["name"] == name]
        return presenters.present_pool(pool, next(iter(templates), None), by_kind.get("Sandbox", ()))
