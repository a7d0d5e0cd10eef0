"""One look at one sandbox, pool or claim: read the cache, decide, carry it out, write the status.

The decisions are the sandbox floor's; here they meet the API server. A write that fails because the world has
moved on ends the look, and the change that it stumbled over brings the next one. Not here: when to look.
"""

from __future__ import annotations

import secrets
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Protocol

from holdfast.controller.status_patch import status_patch
from holdfast.errors import ClusterRefusedError, ObjectConflictError
from holdfast.sandbox.actions import Adopt, Create, Delete, Patch, Target
from holdfast.sandbox.api import NAME_HASH
from holdfast.sandbox.claim import Claimed, decide_claim
from holdfast.sandbox.decide import Observed, decide
from holdfast.sandbox.names import claim_name, pod_name
from holdfast.sandbox.pool import Pool, decide_pool

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from holdfast.controller.cache import Cache, Key
    from holdfast.sandbox.actions import Action

SOON = 0.05
"""When to look again after the world has moved on under a write, in case that no watch tells of it."""
UNWATCHED = 10.0
"""How often a name is tried again that an object without our label has: no watch tells when that one goes."""


class Writer(Protocol):
    """The API server, as far as looks write to it; each answer is the object as it is then."""

    async def create(self, manifest: dict[str, Any]) -> dict[str, Any]: ...

    async def patch(self, target: Target, patch: dict[str, Any]) -> dict[str, Any]: ...

    async def patch_status(self, target: Target, patch: dict[str, Any]) -> dict[str, Any]: ...

    async def delete(self, target: Target, propagation: str | None) -> None: ...

    async def read(self, kind: str, namespace: str, name: str) -> dict[str, Any] | None: ...


class Looks:
    """All looks over one cache and one server."""

    def __init__(
        self, cache: Cache, writer: Writer, *, clock: Callable[[], datetime] = lambda: datetime.now(UTC)
    ) -> None:
        self._cache = cache
        self._writer = writer
        self._clock = clock

    async def look(self, key: Key) -> float | None:
        """Look at one object; seconds until it wants to be looked at again by itself."""
        found = self._cache.get(*key)
        if found is None:
            return None
        if key[0] == "Sandbox":
            return await self._sandbox(found)
        if key[0] == "SandboxWarmPool":
            return await self._pool(found)
        return await self._claim(found)

    async def _sandbox(self, sandbox: dict[str, Any]) -> float | None:
        decision = decide(self._observed(sandbox))
        try:
            await self._carry_out(decision.actions)
        except ClusterRefusedError as error:
            told = decide(self._observed(sandbox, failure=error.message))
            await self._write_status(sandbox, told.status)
            raise
        except ObjectConflictError:
            await self._read_again(sandbox)
            return SOON
        await self._write_status(sandbox, decision.status)
        waits = [wait for wait in (decision.again_in, self._forget_unwatched(sandbox)) if wait is not None]
        return max(SOON, min(waits)) if waits else None

    async def _pool(self, pool: dict[str, Any]) -> float | None:
        name, namespace = pool["spec"]["sandboxTemplateRef"]["name"], pool["metadata"]["namespace"]
        seen = Pool(
            pool=pool,
            template=self._cache.get("SandboxTemplate", namespace, name),
            sandboxes=tuple(self._cache.owned("Sandbox", pool)),
        )
        decision = decide_pool(seen, lambda: f"{pool['metadata']['name']}-{secrets.token_hex(3)}")
        await self._carry_out(decision.actions)
        await self._write_status(pool, decision.status)
        return None

    async def _claim(self, claim: dict[str, Any]) -> float | None:
        namespace = claim["metadata"]["namespace"]
        pool = self._cache.get("SandboxWarmPool", namespace, claim["spec"]["warmPoolRef"]["name"])
        template = (
            self._cache.get("SandboxTemplate", namespace, pool["spec"]["sandboxTemplateRef"]["name"])
            if pool is not None
            else None
        )
        named = self._cache.get("Sandbox", namespace, claim["metadata"]["name"])
        sandboxes = [
            *self._cache.owned("Sandbox", claim),
            *(self._cache.owned("Sandbox", pool) if pool is not None else ()),
            *([named] if named is not None else ()),
        ]
        seen = Claimed(
            claim=claim, pool=pool, template=template, sandboxes=tuple(sandboxes), now=self._clock()
        )
        decision = decide_claim(seen)
        try:
            await self._carry_out(decision.actions)
        except ObjectConflictError:
            return SOON
        if decision.actions:
            return SOON if decision.again_in is None else min(SOON, decision.again_in)
        await self._write_status(claim, decision.status)
        return SOON if decision.again_in == 0 else decision.again_in

    def _observed(self, sandbox: dict[str, Any], failure: str = "") -> Observed:
        namespace, name = sandbox["metadata"]["namespace"], sandbox["metadata"]["name"]
        pods = {pod["metadata"]["uid"]: pod for pod in self._cache.tracked("Pod", namespace, name)}
        by_name = self._cache.get("Pod", namespace, pod_name(sandbox))
        if by_name is not None:
            pods[by_name["metadata"]["uid"]] = by_name
        claims = {
            called: found
            for kind, called in self._parts(sandbox)
            if kind == "PersistentVolumeClaim" and (found := self._cache.get(kind, namespace, called))
        }
        return Observed(
            sandbox=sandbox,
            pods=tuple(pods.values()),
            claims=claims,
            service=self._cache.get("Service", namespace, name),
            now=self._clock(),
            failure=failure,
        )

    async def _carry_out(self, actions: Sequence[Action]) -> None:
        for action in actions:
            match action:
                case Create(manifest=manifest):
                    self._cache.put(await self._writer.create(manifest))
                case Patch(target=target, patch=patch) | Adopt(target=target, patch=patch):
                    self._cache.put(await self._writer.patch(target, patch))
                case Delete(target=target, propagation=propagation):
                    await self._writer.delete(target, propagation)

    async def _write_status(self, found: dict[str, Any], status: dict[str, Any] | None) -> None:
        if status is None:
            return
        patch = status_patch(found.get("status") or {}, status)
        if patch:
            self._cache.put(await self._writer.patch_status(Target.named(found), {"status": patch}))

    async def _read_again(self, sandbox: dict[str, Any]) -> None:
        """A name was taken by something that no watch tells of: look at it, so that the next look sees it."""
        for kind, called in self._parts(sandbox):
            found = await self._writer.read(kind, sandbox["metadata"]["namespace"], called)
            if found is not None:
                self._cache.put(found)

    def _forget_unwatched(self, sandbox: dict[str, Any]) -> float | None:
        """What was read because it is in the way is known for one look only; then its name is tried again."""
        again_in = None
        for kind, called in self._parts(sandbox):
            found = self._cache.get(kind, sandbox["metadata"]["namespace"], called)
            if found is not None and NAME_HASH not in (found["metadata"].get("labels") or {}):
                self._cache.forget(found)
                again_in = UNWATCHED
        return again_in

    def _parts(self, sandbox: dict[str, Any]) -> list[tuple[str, str]]:
        name = sandbox["metadata"]["name"]
        return [
            ("Pod", pod_name(sandbox)),
            ("Service", name),
            *(
                ("PersistentVolumeClaim", claim_name((template.get("metadata") or {}).get("name", ""), name))
                for template in sandbox["spec"].get("volumeClaimTemplates") or ()
            ),
        ]
