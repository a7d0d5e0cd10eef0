"""Reconcile a SandboxWarmPool."""

from __future__ import annotations

import secrets
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec

from holdfast.controller.executor import REQUEUE_NOW, REQUEUE_SOON
from holdfast.errors import ApiRequestRejectedError, ObjectConflictError
from holdfast.sandbox import (
    Create,
    Delete,
    ObservedWarmPool,
    count_held,
    reconcile_warm_pool,
    warm_pool_error_status,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from datetime import datetime

    from holdfast.controller.cache import ObjectCache, ObjectKey
    from holdfast.controller.executor import ActionExecutor
    from holdfast.sandbox import Action


@dataclass(eq=False)
class WarmPoolReconciler:
    """Reconciles warm pools.

    Args:
        cache: Watched objects.
        executor: Executes the decisions.
        clock: Current time.
        reserved: Sandboxes that an adoption or deletion in progress uses.
    """

    _cache: ObjectCache
    _executor: ActionExecutor
    _clock: Callable[[], datetime]
    _reserved: set[ObjectKey]

    async def reconcile(self, pool: dict[str, Any]) -> float | None:
        """Reconcile once; returns the seconds until the next reconciliation, or None."""
        name, namespace = pool["spec"]["sandboxTemplateRef"]["name"], pool["metadata"]["namespace"]
        observed = ObservedWarmPool(
            pool=pool,
            template=self._cache.get("SandboxTemplate", namespace, name),
            sandboxes=tuple(self._cache.list_owned("Sandbox", pool)),
            orphans=tuple(self._cache.list_pool_orphans(namespace, pool["metadata"]["name"])),
            now=self._clock(),
        )
        # If the response to a create is lost, a retry under another random name may leave a surplus sandbox.
        # The next reconciliation deletes the surplus.
        decision = reconcile_warm_pool(observed, lambda: f"{pool['metadata']['name']}-{secrets.token_hex(3)}")
        try:
            with self._reserve_deleted(decision.actions) as actions:
                changed, conflict = await self._execute(actions, pool)
        except ApiRequestRejectedError as error:
            # Actions before the rejected one have succeeded: report the sandboxes that exist now.
            sandboxes = tuple(self._cache.list_owned("Sandbox", pool))
            observed = msgspec.structs.replace(observed, sandboxes=sandboxes)
            await self._executor.write_status(pool, warm_pool_error_status(observed, error.message))
            raise
        self._executor.report_held_sandboxes(pool, count_held(observed))
        is_written = not changed and await self._executor.write_status(pool, decision.status)
        if conflict is not None:
            raise conflict
        if changed or is_written:
            # The response may contain an edit of the spec, whose watch event is then ignored.
            return REQUEUE_NOW
        return None if decision.requeue_after is None else max(REQUEUE_SOON, decision.requeue_after)

    async def _execute(
        self, actions: Sequence[Action], pool: dict[str, Any]
    ) -> tuple[bool, ObjectConflictError | None]:
        """Execute actions; a conflict about one sandbox does not prevent the changes of the others.

        Returns:
            Whether the cache changed, and the last conflict.
        """
        changed, conflicts = False, list[ObjectConflictError]()
        creations = [action for action in actions if isinstance(action, Create)]
        for action in actions:
            if isinstance(action, Create):
                continue
            try:
                changed |= await self._executor.execute((action,), pool)
            except ObjectConflictError as error:
                conflicts.append(error)
        # Each sandbox that stays may be one that a new one would have replaced.
        kept = creations[: max(0, len(creations) - len(conflicts))]
        changed |= await self._executor.execute(kept, pool)
        return changed, conflicts[-1] if conflicts else None

    @contextmanager
    def _reserve_deleted(self, actions: Sequence[Action]) -> Iterator[list[Action]]:
        """Drop deletions of sandboxes that are being adopted, and reserve the others against adoption."""
        allowed = [
            action
            for action in actions
            if not (isinstance(action, Delete) and action.target.key in self._reserved)
        ]
        deleted = {action.target.key for action in allowed if isinstance(action, Delete)}
        # In place: the reconciler of SandboxClaims shares this set. No other task has run since the decision.
        self._reserved |= deleted
        try:
            yield allowed
        finally:
            self._reserved -= deleted
