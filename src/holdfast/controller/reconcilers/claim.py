"""Reconcile a SandboxClaim: the sandbox first, then the status, then its annotations."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from holdfast.controller.cache import object_key
from holdfast.controller.executor import REQUEUE_NOW, REQUEUE_SOON
from holdfast.errors import ApiRequestRejectedError
from holdfast.retry import exponential, random_fraction
from holdfast.sandbox import (
    Adopt,
    ObservedSandboxClaim,
    Patch,
    additional_pod_metadata,
    bound_sandbox_name,
    reconcile_sandbox_claim,
    sandbox_claim_error_status,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from contextlib import AbstractContextManager
    from datetime import datetime

    from holdfast.controller.cache import ObjectCache, ObjectKey
    from holdfast.controller.executor import ActionExecutor
    from holdfast.sandbox import Action


_MAX_TRACKED = 4096
_BACKOFF = exponential(REQUEUE_SOON, cap=10.0, jitter=0.0)
"""The other actor may be fixed meanwhile: users must not wait for minutes then."""
_RESET_AFTER = 60.0
"""A patch that lasted this long is applied immediately when it is needed again."""


class _AppliedPatch(NamedTuple):
    patch: dict[str, Any]
    attempts: int
    applied_at: float


class RevertBackoff:
    """Exponential backoff for patches that another actor reverts, such as a webhook or a second controller.

    Tracks the last patch of each object by uid; only an identical patch has to wait.
    """

    def __init__(self, clock: Callable[[], float] = lambda: asyncio.get_running_loop().time()) -> None:
        self._clock = clock
        self._applied: dict[str, _AppliedPatch] = {}

    def split_due(self, actions: Iterable[Action]) -> tuple[list[Action], float | None]:
        """Split actions into those due now and the seconds until the first of the others is due."""
        remaining = [(action, self._remaining_seconds(action)) for action in actions]
        due = [action for action, seconds in remaining if seconds <= 0]
        return due, min((seconds for _, seconds in remaining if seconds > 0), default=None)

    def record_applied(self, actions: Iterable[Action]) -> None:
        """Record actions that the API server accepted."""
        for action in actions:
            if isinstance(action, Patch):
                last = self._last_identical(action)
                # Clearing bounds the memory; it costs at most one patch without delay per object.
                if len(self._applied) > _MAX_TRACKED:
                    self._applied.clear()
                attempts = last.attempts + 1 if last else 1
                self._applied[action.target.uid] = _AppliedPatch(action.patch, attempts, self._clock())

    def _remaining_seconds(self, action: Action) -> float:
        last = self._last_identical(action) if isinstance(action, Patch) else None
        if last is None:
            return 0.0
        return last.applied_at + _BACKOFF.delay(last.attempts, 0.0, random_fraction) - self._clock()

    def _last_identical(self, action: Patch) -> _AppliedPatch | None:
        last = self._applied.get(action.target.uid)
        if last is None or last.patch != action.patch or self._clock() - last.applied_at >= _RESET_AFTER:
            return None
        return last


@dataclass(eq=False)
class SandboxClaimReconciler:
    """Reconciles SandboxClaims.

    Args:
        cache: Watched objects.
        executor: Executes the decisions.
        clock: Current time.
        reserved: Sandboxes that an adoption or deletion in progress uses.
        defer_events: Defers the events of a sandbox.
    """

    _cache: ObjectCache
    _executor: ActionExecutor
    _clock: Callable[[], datetime]
    _reserved: set[ObjectKey]
    _defer_events: Callable[[ObjectKey], AbstractContextManager[None]]
    _revert_backoff: RevertBackoff = field(default_factory=RevertBackoff, init=False)

    async def reconcile(self, claim: dict[str, Any]) -> float | None:
        """Reconcile once; a rejection by the API server is written to the status."""
        try:
            return await self._reconcile(claim)
        except ApiRequestRejectedError as error:
            live = self._cache.get(*object_key(claim))
            if live is not None:
                status = sandbox_claim_error_status(self._observe(live), error.message)
                await self._executor.write_status(live, status)
            raise

    async def _reconcile(self, claim: dict[str, Any]) -> float | None:
        await self._fetch_unknown_sandbox(claim)
        decision = reconcile_sandbox_claim(self._observe(claim))
        adoption = next((action for action in decision.actions if isinstance(action, Adopt)), None)
        if adoption is not None:
            return await self._adopt_sandbox(adoption, claim)
        due, delay = self._revert_backoff.split_due(decision.actions)
        key = object_key(claim)
        claim_patches = [action for action in due if isinstance(action, Patch) and action.target.key == key]
        sandbox_actions = [action for action in due if action not in claim_patches]
        changed = await self._executor.execute(sandbox_actions, claim)
        self._revert_backoff.record_applied(sandbox_actions)
        # The status first: users wait for it, and the annotation only repeats it.
        status_written = await self._executor.write_status(claim, decision.status)
        await self._executor.execute(claim_patches, claim)
        self._revert_backoff.record_applied(claim_patches)
        if status_written or claim_patches or changed:
            # Lifetimes may start with the new status.
            return REQUEUE_NOW
        if sandbox_actions or decision.requeue_after == 0:
            return REQUEUE_SOON
        return min((wait for wait in (delay, decision.requeue_after) if wait is not None), default=None)

    async def _adopt_sandbox(self, adoption: Adopt, claim: dict[str, Any]) -> float:
        """Adopt a sandbox and report it; events of the sandbox are deferred until the status is written.

        Otherwise the pool would create its replacement while the user waits for this sandbox.
        """
        sandbox = adoption.target.key
        # No await since the observation, so no other reconciler can have reserved this sandbox meanwhile.
        self._reserved.add(sandbox)
        try:
            with self._defer_events(sandbox):
                # If the controller crashes after this write, the owner reference binds the sandbox, and the
                # next leader writes the status.
                await self._executor.execute((adoption,), claim)
                decision = reconcile_sandbox_claim(self._observe(claim))
                if not all(isinstance(action, Patch) for action in decision.actions):
                    # The sandbox was deleted during the adoption: try another one.
                    return REQUEUE_NOW
                await self._executor.write_status(claim, decision.status)
        finally:
            self._reserved.discard(sandbox)
        await self._executor.execute(decision.actions, claim)
        return REQUEUE_NOW

    async def _fetch_unknown_sandbox(self, claim: dict[str, Any]) -> None:
        """Read the bound sandbox if it is not cached: creating another one would lose the user's data."""
        namespace, name = claim["metadata"]["namespace"], bound_sandbox_name(claim)
        if name and self._cache.get("Sandbox", namespace, name) is None:
            sandbox = await self._executor.read("Sandbox", namespace, name)
            if sandbox is not None and not self._executor.on_write(sandbox, object_key(claim)):
                self._cache.put(sandbox, read_by_name=True)

    def _observe(self, claim: dict[str, Any]) -> ObservedSandboxClaim:
        namespace = claim["metadata"]["namespace"]
        pool = self._cache.get("SandboxWarmPool", namespace, claim["spec"]["warmPoolRef"]["name"])
        template = (
            self._cache.get("SandboxTemplate", namespace, pool["spec"]["sandboxTemplateRef"]["name"])
            if pool is not None
            else None
        )
        same_name = self._cache.get("Sandbox", namespace, claim["metadata"]["name"])
        warm = self._cache.list_owned("Sandbox", pool) if pool is not None else []
        sandboxes = [
            *self._cache.list_owned("Sandbox", claim),
            *(sandbox for sandbox in warm if object_key(sandbox) not in self._reserved),
            *([same_name] if same_name is not None else ()),
        ]
        return ObservedSandboxClaim(
            sandbox_claim=claim,
            pool=pool,
            template=template,
            sandboxes=tuple(sandboxes),
            network_policies=tuple(self._cache.iter_kind("NetworkPolicy"))
            if additional_pod_metadata(claim, "labels")
            else (),
            now=self._clock(),
        )
