"""Reconcile a SandboxClaim: the sandbox first, then the status, then the time of the first readiness."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from holdfast.api import FIRST_OBSERVED_ANNOTATION, FIRST_READY_ANNOTATION
from holdfast.controller.cache import object_key
from holdfast.controller.executor import REQUEUE_NOW, REQUEUE_SOON
from holdfast.errors import ApiRequestRejectedError, ObjectConflictError
from holdfast.kube import parse_status
from holdfast.retry import exponential, random_fraction
from holdfast.sandbox import (
    DEFAULT_LABEL_DOMAINS,
    Adopt,
    Create,
    ObservedSandboxClaim,
    Patch,
    additional_pod_metadata,
    adoption_conflict,
    bound_sandbox_name,
    creation_conflict,
    error_condition,
    is_managed_policy,
    reconcile_sandbox_claim,
    recorded_sandbox_name,
    sandbox_claim_error_status,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from contextlib import AbstractContextManager
    from datetime import datetime

    from holdfast.controller.cache import ObjectCache, ObjectKey
    from holdfast.controller.executor import ActionExecutor
    from holdfast.sandbox import Action, Decision


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
                patch = _without_times(action.patch)
                self._applied[action.target.uid] = _AppliedPatch(patch, attempts, self._clock())

    def _remaining_seconds(self, action: Action) -> float:
        last = self._last_identical(action) if isinstance(action, Patch) else None
        if last is None:
            return 0.0
        return last.applied_at + _BACKOFF.delay(last.attempts, 0.0, random_fraction) - self._clock()

    def _last_identical(self, action: Patch) -> _AppliedPatch | None:
        last = self._applied.get(action.target.uid)
        is_identical = last is not None and last.patch == _without_times(action.patch)
        if last is None or not is_identical or self._clock() - last.applied_at >= _RESET_AFTER:
            return None
        return last


def _without_times(patch: dict[str, Any]) -> dict[str, Any]:
    """The patch without values that differ each time."""
    annotations = patch.get("metadata", {}).get("annotations") or {}
    times = dict.fromkeys({FIRST_OBSERVED_ANNOTATION, FIRST_READY_ANNOTATION} & annotations.keys())
    return (
        {**patch, "metadata": {**patch["metadata"], "annotations": {**annotations, **times}}}
        if times
        else patch
    )


@dataclass(eq=False)
class SandboxClaimReconciler:
    """Reconciles SandboxClaims.

    Args:
        cache: Watched objects.
        executor: Executes the decisions.
        clock: Current time.
        reserved: Sandboxes that an adoption or deletion in progress uses.
        defer_events: Defers the events of a sandbox.
        label_domains: Domains of labels that SandboxClaims may add to pods.
        rejects_policy_labels: Whether they may not add labels by which a managed network policy allows
            connections.
    """

    _cache: ObjectCache
    _executor: ActionExecutor
    _clock: Callable[[], datetime]
    _reserved: set[ObjectKey]
    _defer_events: Callable[[ObjectKey], AbstractContextManager[None]]
    _label_domains: tuple[str, ...] = DEFAULT_LABEL_DOMAINS
    _rejects_policy_labels: bool = False
    _revert_backoff: RevertBackoff = field(default_factory=RevertBackoff, init=False)

    async def reconcile(self, claim: dict[str, Any]) -> float | None:
        """Reconcile once; a rejection by the API server is written to the status."""
        await self._fetch_unknown_sandboxes(claim)
        await self._fetch_missing_template(claim)
        decision = reconcile_sandbox_claim(self._observe(claim))
        adoption = next((action for action in decision.actions if isinstance(action, Adopt)), None)
        creates = any(isinstance(action, Create) for action in decision.actions)
        try:
            if adoption is not None:
                return await self._adopt_sandbox(decision, adoption, claim)
            return await self._apply(decision, claim)
        except ApiRequestRejectedError as error:
            await self._write_error(claim, _describe_rejection(error, creates=creates))
            raise
        except ObjectConflictError:
            live = self._cache.get(*object_key(claim))
            if creates and live is not None:
                await self._executor.write_status(live, creation_conflict(self._observe(live)))
            raise

    async def _apply(self, decision: Decision, claim: dict[str, Any]) -> float | None:
        """Execute a decision about a SandboxClaim that adopts nothing."""
        due, delay = self._revert_backoff.split_due(decision.actions)
        changed = await self._executor.execute(due, claim)
        self._revert_backoff.record_applied(due)
        # The response to a patch of the SandboxClaim is its newest version.
        own = [one for one in due if isinstance(one, Patch) and one.target.uid == claim["metadata"]["uid"]]
        current = (self._live(claim) or claim) if own else claim
        status_written = await self._executor.write_status(current, decision.status)
        later, later_delay = self._revert_backoff.split_due(decision.after_status)
        # The status first: users wait for it, and the annotation only tells when it was written.
        await self._executor.execute(later, claim)
        self._revert_backoff.record_applied(later)
        if status_written or later or changed:
            # Lifetimes may start with the new status.
            return REQUEUE_NOW
        if due or decision.requeue_after == 0:
            return REQUEUE_SOON
        waits = (delay, later_delay, decision.requeue_after)
        return min((wait for wait in waits if wait is not None), default=None)

    async def _adopt_sandbox(self, decision: Decision, adoption: Adopt, claim: dict[str, Any]) -> float:
        """Adopt a sandbox and report it; events of the sandbox are deferred until the status is written.

        Otherwise the pool would create its replacement while the user waits for this sandbox.
        """
        sandbox = adoption.target.key
        # No await since the observation, so no other reconciler can have reserved this sandbox meanwhile.
        self._reserved.add(sandbox)
        try:
            with self._defer_events(sandbox):
                record = [action for action in decision.actions if action is not adoption]
                # If the controller crashes after this write, the next leader completes the adoption.
                await self._execute_or_report(record, adoption, claim)
                live = self._live(claim)
                if live is None:
                    return REQUEUE_NOW
                # After this write, the owner reference binds the sandbox, and the next leader writes the
                # status.
                await self._execute_or_report((adoption,), adoption, live)
                follow = reconcile_sandbox_claim(self._observe(live))
                if any(isinstance(action, Adopt | Create) for action in follow.actions):
                    # The sandbox was deleted during the adoption: try another one.
                    await self._report_conflict(claim, adoption)
                    return REQUEUE_NOW
                await self._executor.write_status(live, follow.status)
        finally:
            self._reserved.discard(sandbox)
        await self._executor.execute((*follow.actions, *follow.after_status), live)
        return REQUEUE_NOW

    async def _execute_or_report(
        self, actions: Sequence[Action], adoption: Adopt, claim: dict[str, Any]
    ) -> None:
        try:
            await self._executor.execute(actions, claim)
        except ObjectConflictError:
            await self._report_conflict(claim, adoption)
            raise

    async def _report_conflict(self, claim: dict[str, Any], adoption: Adopt) -> None:
        """Report why an adoption failed. Both objects are read: the cache may be older than the conflict."""
        live = await self._read_again(object_key(claim), claim)
        sandbox = await self._read_again(adoption.target.key, claim)
        if live is None or live["metadata"].get("deletionTimestamp"):
            return
        observed, name = self._observe(live), adoption.target.name
        ready = adoption_conflict(claim, name, current=live, sandbox=sandbox, pool=observed.pool)
        if ready is not None:
            await self._executor.write_status(live, sandbox_claim_error_status(observed, ready))

    async def _read_again(self, key: ObjectKey, claim: dict[str, Any]) -> dict[str, Any] | None:
        """Replace an object in the cache by that of the API server."""
        known, found = self._cache.get(*key), await self._executor.read(*key)
        if found is not None:
            self._executor.on_write(found, object_key(claim))
        elif known is not None:
            self._cache.evict(known)
        return found

    async def _write_error(self, claim: dict[str, Any], message: str) -> None:
        live = self._cache.get(*object_key(claim))
        if live is not None:
            status = sandbox_claim_error_status(self._observe(live), error_condition(message))
            await self._executor.write_status(live, status)

    def _live(self, claim: dict[str, Any]) -> dict[str, Any] | None:
        """The SandboxClaim as it is in the cache; None if it is deleted or being deleted."""
        live = self._cache.get(*object_key(claim))
        if live is None or live["metadata"]["uid"] != claim["metadata"]["uid"]:
            return None
        return None if live["metadata"].get("deletionTimestamp") else live

    async def _fetch_unknown_sandboxes(self, claim: dict[str, Any]) -> None:
        """Read a recorded sandbox that is not cached: creating another one would lose the user's data."""
        namespace = claim["metadata"]["namespace"]
        for name in {bound_sandbox_name(claim), recorded_sandbox_name(claim)} - {""}:
            if self._cache.get("Sandbox", namespace, name) is None:
                sandbox = await self._executor.read("Sandbox", namespace, name)
                if sandbox is not None and not self._executor.on_write(sandbox, object_key(claim)):
                    self._cache.put(sandbox, read_by_name=True)

    async def _fetch_missing_template(self, claim: dict[str, Any]) -> None:
        """Read a pool and a template that are not cached: clients give up when these are reported missing.

        The watches of the kinds are independent, so that a SandboxClaim can arrive before its pool.
        """
        if bound_sandbox_name(claim) and not claim["spec"].get("additionalPodMetadata"):
            return
        pool = await self._fetch("SandboxWarmPool", claim["spec"]["warmPoolRef"]["name"], claim)
        if pool is not None:
            await self._fetch("SandboxTemplate", pool["spec"]["sandboxTemplateRef"]["name"], claim)

    async def _fetch(self, kind: str, name: str, claim: dict[str, Any]) -> dict[str, Any] | None:
        """Return an object of the namespace from the cache, else from the API server."""
        namespace = claim["metadata"]["namespace"]
        known = self._cache.get(kind, namespace, name)
        if known is None and (found := await self._executor.read(kind, namespace, name)) is not None:
            self._executor.on_write(found, object_key(claim))
            known = self._cache.get(kind, namespace, name)
        return known

    def _observe(self, claim: dict[str, Any]) -> ObservedSandboxClaim:
        namespace = claim["metadata"]["namespace"]
        pool = self._cache.get("SandboxWarmPool", namespace, claim["spec"]["warmPoolRef"]["name"])
        template = (
            self._cache.get("SandboxTemplate", namespace, pool["spec"]["sandboxTemplateRef"]["name"])
            if pool is not None
            else None
        )
        warm = self._cache.list_owned("Sandbox", pool) if pool is not None else []
        names = {claim["metadata"]["name"], bound_sandbox_name(claim), recorded_sandbox_name(claim)}
        by_name = [self._cache.get("Sandbox", namespace, name) for name in sorted(names - {""})]
        # Reserved sandboxes of the pool are about to belong to another SandboxClaim, or to be deleted.
        reserved = {one["metadata"]["uid"] for one in warm if object_key(one) in self._reserved}
        found = {
            sandbox["metadata"]["uid"]: sandbox
            for sandbox in (*self._cache.list_owned("Sandbox", claim), *warm, *filter(None, by_name))
            if sandbox["metadata"]["uid"] not in reserved
        }
        return ObservedSandboxClaim(
            sandbox_claim=claim,
            pool=pool,
            template=template,
            sandboxes=tuple(found.values()),
            network_policies=tuple(filter(is_managed_policy, self._cache.iter_kind("NetworkPolicy")))
            if self._rejects_policy_labels and additional_pod_metadata(claim, "labels")
            else (),
            own_policies=tuple(self._cache.list_owned("NetworkPolicy", claim)),
            now=self._clock(),
            label_domains=self._label_domains,
        )


def _describe_rejection(error: ApiRequestRejectedError, *, creates: bool) -> str:
    cause = error.cause if isinstance(error.cause, Exception) else None
    message = (parse_status(cause).message if cause else "") or error.message
    return f"sandbox create error: {message}" if creates else message
