"""Leader election with a Lease: one of several controllers works, the others wait.

A leader releases the Lease when it stops. After a crash, another process takes the Lease once it expires. A
leader that cannot renew in time stops leading, and its process must exit before another one takes over.
"""

from __future__ import annotations

import asyncio
import logging
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from holdfast.errors import DeadlineExceededError, HoldfastError, ObjectConflictError
from holdfast.kube import WaitResult
from holdfast.retry import clock

if TYPE_CHECKING:
    from holdfast.kube import AsyncObjects

log = logging.getLogger("holdfast.controller")

LEASE_NAME = "a3317529.agent-sandbox.x-k8s.io"
"""The Lease of the published controller: the two must never work at the same time."""

LEASE_DURATION = 15.0
"""Seconds after which other processes may take a Lease that is not renewed."""
RENEW_DEADLINE = 10.0
"""Seconds in which a leader must renew; shorter than the Lease duration, so two leaders never overlap."""
RENEW_INTERVAL = 3.0


class LeaderElector:
    """One Lease, for one process."""

    def __init__(self, objects: AsyncObjects, namespace: str, name: str, identity: str) -> None:
        self._objects, self._namespace, self._name = objects, namespace, name
        self._identity = identity
        self._renewed_at = 0.0
        self.is_leader = False

    async def acquire(self) -> None:
        """Wait until this process holds the Lease."""
        while not self.is_leader:
            lease = await self._read()
            # A Lease of this identity is left from an earlier process, which has ended.
            if lease is None or _holder(lease) in ("", self._identity):
                await self._take_lease(lease)
            else:
                await self._wait_for_release(lease)

    async def renew_until_lost(self) -> None:
        """Renew the Lease until it is lost."""
        while True:
            # If a try fails just before RENEW_DEADLINE, one more follows after this sleep, limited to 0.1 s.
            # So the leader stops at most 13.1 s after its last renewal, before the Lease expires.
            await clock.asleep(RENEW_INTERVAL)
            try:
                # A server that does not respond must not keep an expired leader working: the timeout cancels
                # the request.
                async with asyncio.timeout(max(0.1, self._renewed_at + RENEW_DEADLINE - clock.monotonic())):
                    self.is_leader = await self._renew()
            except (HoldfastError, TimeoutError) as error:
                log.warning("the lease could not be renewed: %s", error or "timeout")
            if not self.is_leader or clock.monotonic() - self._renewed_at >= RENEW_DEADLINE:
                self.is_leader = False
                return

    async def release(self) -> None:
        """Release the Lease so that another process can take it immediately."""
        if self.is_leader:
            self.is_leader = False
            lease = await self._read()
            # After a failed renewal, another process may hold the Lease.
            if lease is not None and _holder(lease) == self._identity:
                # As client-go releases a Lease: without a holder, and with a duration of 1 s.
                await self._patch({"holderIdentity": "", "leaseDurationSeconds": 1}, lease)

    async def _take_lease(self, lease: dict[str, Any] | None) -> None:
        spec = (lease or {}).get("spec") or {}
        now = _now_microtime()
        new_spec = {
            "holderIdentity": self._identity,
            "leaseDurationSeconds": int(LEASE_DURATION),
            "acquireTime": now,
            "renewTime": now,
            "leaseTransitions": int(spec.get("leaseTransitions") or 0) + (lease is not None),
        }
        await self._write(new_spec, lease)

    async def _write(self, spec: dict[str, Any], lease: dict[str, Any] | None) -> bool:
        """Create the Lease, or patch the one that was read; returns False if another process was faster."""
        # The time before the request: the Lease lasts at least this long, however late the response is.
        started = clock.monotonic()
        try:
            if lease is None:
                await self._objects.create(
                    {
                        "apiVersion": "coordination.k8s.io/v1",
                        "kind": "Lease",
                        "metadata": {"name": self._name, "namespace": self._namespace},
                        "spec": spec,
                    }
                )
            elif await self._patch(spec, lease) is None:
                return False
        except ObjectConflictError:
            return False
        self._renewed_at, self.is_leader = started, True
        return True

    async def _wait_for_release(self, lease: dict[str, Any]) -> None:
        """Wait until the Lease is released, renewed or expired; an expired Lease is taken."""
        # Measure the duration with the local clock, from the moment this version was seen. `renewTime` comes
        # from the clock of another host, which may differ.
        seen_at, version = clock.monotonic(), lease["metadata"]["resourceVersion"]
        duration = lease["spec"].get("leaseDurationSeconds") or LEASE_DURATION
        log.info("standing by: the leader is %s", lease["spec"].get("holderIdentity"))

        def is_released(live: dict[str, Any] | None) -> WaitResult:
            if live is None or not _holder(live):
                return WaitResult(done=True)
            renewed = live["metadata"]["resourceVersion"] != version
            return WaitResult(done=renewed, observed="its holder does not renew it")

        try:
            await self._objects.wait(
                "Lease", self._name, is_released, namespace=self._namespace, deadline=float(duration)
            )
        except DeadlineExceededError:
            # A wait also ends with this error when its retries end early. The holder may lead until the Lease
            # expires; if it has renewed the Lease meanwhile, taking it fails.
            await clock.asleep(seen_at + duration - clock.monotonic())
            await self._take_lease(lease)

    async def _renew(self) -> bool:
        lease = await self._read()
        if lease is None or _holder(lease) != self._identity:
            return False
        return await self._write({"renewTime": _now_microtime()}, lease)

    async def _read(self) -> dict[str, Any] | None:
        return await self._objects.get("Lease", self._name, namespace=self._namespace)

    async def _patch(self, spec: dict[str, Any], lease: dict[str, Any]) -> dict[str, Any] | None:
        """Patch the Lease, unless it has changed since it was read."""
        # With the resourceVersion, the API server accepts only one of two processes that take the Lease at
        # the same time.
        patch = {"metadata": {"resourceVersion": lease["metadata"]["resourceVersion"]}, "spec": spec}
        return await self._objects.patch("Lease", self._name, patch, namespace=self._namespace)


def _holder(lease: dict[str, Any]) -> str:
    return str((lease.get("spec") or {}).get("holderIdentity") or "")


def _now_microtime() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
