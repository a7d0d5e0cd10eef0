"""Carries out what was decided, on the API server; what a write makes of an object is known at once.

A write that fails because the world has moved on ends the look that asked for it. Not here: what to write.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from holdfast.controller.cache import key_of, version_of
from holdfast.controller.status_patch import status_patch
from holdfast.sandbox.actions import Adopt, Create, Delete, Patch, Target

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from holdfast.controller.cache import Cache, Key
    from holdfast.sandbox.actions import Action

NOW = 0.0
"""Look again at once: what was done is known, and more follows from it."""
SOON = 0.05
"""When to look again after the world has moved on under a write, in case that no watch tells of it."""


class Writer(Protocol):
    """The API server, as far as looks write to it; each answer is the object as it is then."""

    async def create(self, manifest: dict[str, Any]) -> dict[str, Any]: ...

    async def patch(self, target: Target, patch: dict[str, Any]) -> dict[str, Any] | None: ...

    async def patch_status(self, target: Target, patch: dict[str, Any]) -> dict[str, Any] | None: ...

    async def delete(self, target: Target, propagation: str | None, version: str | None) -> bool: ...

    async def read(self, kind: str, namespace: str, name: str) -> dict[str, Any] | None: ...


class Hands:
    """All writes of all looks; `told` takes each answer: it is news for others too."""

    def __init__(
        self,
        cache: Cache,
        writer: Writer,
        *,
        told: Callable[[dict[str, Any], Key], bool],
        counted: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._cache, self._writer, self._counted = cache, writer, counted
        self.told = told

    async def read(self, kind: str, namespace: str, name: str) -> dict[str, Any] | None:
        """An object as the server has it now."""
        return await self._writer.read(kind, namespace, name)

    async def carry_out(self, actions: Sequence[Action], of: dict[str, Any]) -> bool:
        """Do all of it in order; True when something is known now that was not, whoever told of it first."""
        news = False
        for action in actions:
            self._counted(type(action).__name__.lower())
            match action:
                case Create(manifest=manifest):
                    self.told(await self._writer.create(manifest), key_of(of))
                    news = True
                case Patch(target=target, patch=patch) | Adopt(target=target, patch=patch):
                    before = self._cache.get(target.kind, target.namespace, target.name)
                    found = await self._writer.patch(target, patch)
                    news |= self._keep(found, target, of) or _is_later(found, before)
                case Delete(target=target, propagation=propagation, version=version):
                    if not await self._writer.delete(target, propagation, version):
                        news |= self._keep(None, target, of)
        return news

    async def write_status(self, found: dict[str, Any], status: dict[str, Any] | None) -> bool:
        """Write what is not said yet; True when that was something."""
        patch = {} if status is None else status_patch(found.get("status") or {}, status)
        if not patch:
            return False
        self._counted("status")
        target = Target.named(found)
        self._keep(await self._writer.patch_status(target, {"status": patch}), target, found)
        return True

    def _keep(self, answer: dict[str, Any] | None, target: Target, of: dict[str, Any]) -> bool:
        """Know the answer to a write; one that found nothing tells that the object is gone."""
        if answer is not None:
            return self.told(answer, key_of(of))
        known = self._cache.get(target.kind, target.namespace, target.name)
        return known is not None and known["metadata"]["uid"] == target.uid and self._cache.forget(known)


def _is_later(found: dict[str, Any] | None, before: dict[str, Any] | None) -> bool:
    return found is not None and before is not None and version_of(found) > version_of(before)
