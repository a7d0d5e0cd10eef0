"""Which of several controllers works: the one that holds a Lease; the others wait for it.

A holder that ends lets go of it; one that dies is waited out. A holder that could not renew in time says so,
and its process has to end before another may take over. Not here: what the holder does.
"""

from __future__ import annotations

import asyncio
import logging
import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from holdfast.errors import DeadlineError, HoldfastError, ObjectConflictError
from holdfast.kube import Sight
from holdfast.retry import clock

if TYPE_CHECKING:
    from holdfast.kube import AsyncObjects

log = logging.getLogger("holdfast.controller")

LASTS = 15.0
"""How long a Lease is its holder's without a renewal, as others see it."""
GIVEN_UP = 10.0
"""How long a holder tries to renew: less than it lasts, so that two never work at once."""
EVERY = 3.0


class Lease:
    """One Lease in one namespace, for one process."""

    def __init__(self, objects: AsyncObjects, namespace: str, name: str, identity: str) -> None:
        self._objects, self._namespace, self._name = objects, namespace, name
        self._identity = identity
        self._renewed = 0.0
        self.held = False

    async def take(self) -> None:
        """Wait until it is ours."""
        while not await self._try():
            await self._changes()

    async def keep(self) -> None:
        """Renew it until it is lost; then return."""
        while True:
            await clock.apause(EVERY)
            try:
                async with asyncio.timeout(max(0.1, self._renewed + GIVEN_UP - time.monotonic())):
                    self.held = await self._renew()
            except (HoldfastError, TimeoutError) as error:
                log.warning("the lease could not be renewed: %s", error or "no answer")
            if not self.held or time.monotonic() - self._renewed >= GIVEN_UP:
                self.held = False
                return

    async def let_go(self) -> None:
        """Let another one have it now."""
        if self.held:
            self.held = False
            await self._patch({"holderIdentity": "", "leaseDurationSeconds": 1}, await self._read())

    async def _try(self) -> bool:
        """Take it if nobody holds it, or it is ours from an earlier life."""
        found = await self._read()
        spec = (found or {}).get("spec") or {}
        if found is not None and spec.get("holderIdentity") not in (None, "", self._identity):
            return False
        return await self._claim(found)

    async def _claim(self, found: dict[str, Any] | None) -> bool:
        spec = (found or {}).get("spec") or {}
        now = _now()
        wanted = {
            "holderIdentity": self._identity,
            "leaseDurationSeconds": int(LASTS),
            "acquireTime": now,
            "renewTime": now,
            "leaseTransitions": int(spec.get("leaseTransitions") or 0) + (found is not None),
        }
        began = time.monotonic()
        try:
            if found is None:
                await self._objects.create(
                    {
                        "apiVersion": "coordination.k8s.io/v1",
                        "kind": "Lease",
                        "metadata": {"name": self._name, "namespace": self._namespace},
                        "spec": wanted,
                    }
                )
            elif await self._patch(wanted, found) is None:
                return False
        except ObjectConflictError:
            return False
        self._renewed, self.held = began, True
        return True

    async def _changes(self) -> None:
        """Wait until its holder lets go of it, or is silent for as long as it lasts: then it is taken."""
        found = await self._read()
        if found is None:
            return
        version, lasts = (
            found["metadata"]["resourceVersion"],
            found["spec"].get("leaseDurationSeconds") or LASTS,
        )
        log.info("standing by: %s leads", found["spec"].get("holderIdentity"))

        def until(lease: dict[str, Any] | None) -> Sight:
            if lease is None or not (lease.get("spec") or {}).get("holderIdentity"):
                return Sight(done=True)
            return Sight(done=lease["metadata"]["resourceVersion"] != version, seen="its holder is silent")

        try:
            await self._objects.wait(
                "Lease", self._name, until, namespace=self._namespace, deadline=float(lasts)
            )
        except DeadlineError:
            await self._claim(found)

    async def _renew(self) -> bool:
        found = await self._read()
        if found is None or (found.get("spec") or {}).get("holderIdentity") != self._identity:
            return False
        began = time.monotonic()
        try:
            if await self._patch({"renewTime": _now()}, found) is None:
                return False
        except ObjectConflictError:
            return False
        self._renewed = began
        return True

    async def _read(self) -> dict[str, Any] | None:
        return await self._objects.get("Lease", self._name, namespace=self._namespace)

    async def _patch(self, spec: dict[str, Any], found: dict[str, Any] | None) -> dict[str, Any] | None:
        """Change it as it was seen, and not later."""
        if found is None:
            return None
        version = found["metadata"]["resourceVersion"]
        patch = {"metadata": {"resourceVersion": version}, "spec": spec}
        return await self._objects.patch("Lease", self._name, patch, namespace=self._namespace)


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
