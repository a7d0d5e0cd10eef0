"""The API server as looks write to it: plain verbs over the resilient client, each on one very object."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from holdfast.sandbox.api import API_VERSION

if TYPE_CHECKING:
    from holdfast.kube import AsyncObjects
    from holdfast.sandbox.actions import Target


class ClusterWriter:
    """`hands.Writer` on a real cluster."""

    def __init__(self, objects: AsyncObjects) -> None:
        self._objects = objects

    async def create(self, manifest: dict[str, Any]) -> dict[str, Any]:
        return await self._objects.create(manifest)

    async def patch(self, target: Target, patch: dict[str, Any]) -> dict[str, Any] | None:
        return await self._patch(target, patch, None)

    async def patch_status(self, target: Target, patch: dict[str, Any]) -> dict[str, Any] | None:
        return await self._patch(target, patch, "status")

    async def delete(self, target: Target, propagation: str | None, version: str | None) -> bool:
        result = await self._objects.delete(
            target.kind,
            target.name,
            namespace=target.namespace,
            api_version=target.api_version,
            uid=target.uid,
            propagation=propagation,
            version=version,
        )
        return result.did == "deleted"

    async def read(self, kind: str, namespace: str, name: str) -> dict[str, Any] | None:
        api_version = API_VERSION if kind == "Sandbox" else None
        return await self._objects.get(kind, name, namespace=namespace, api_version=api_version)

    async def _patch(
        self, target: Target, patch: dict[str, Any], subresource: str | None
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
