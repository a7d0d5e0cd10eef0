"""Reconcile a Sandbox with its pod, PVCs and Service."""

from __future__ import annotations

import asyncio
from dataclasses import KW_ONLY, dataclass, field
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from holdfast.api import NAME_HASH_LABEL, TEMPLATE_REF_ANNOTATION, ConditionType, SandboxReason
from holdfast.controller.executor import REQUEUE_NOW, REQUEUE_SOON, is_deferrable
from holdfast.errors import ApiRequestRejectedError
from holdfast.kube import http_status, parse_status
from holdfast.sandbox import (
    CLUSTER_DOMAIN,
    Adopt,
    Create,
    Delete,
    ObservedSandbox,
    Patch,
    RejectedWrite,
    find_condition,
    has_condition,
    is_bound,
    name_hash,
    pod_metadata,
    pod_name,
    pvc_name,
    reconcile_sandbox,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence
    from datetime import datetime
    from decimal import Decimal

    from holdfast.controller.cache import ObjectCache, ObjectKey
    from holdfast.controller.executor import ActionExecutor
    from holdfast.sandbox import Action

REQUEUE_AFTER_POD_CREATE = 0.25
"""Delay before the first status of a new pod, so that it includes the result of the scheduler."""
BINDING_GRACE = 0.25
"""How long a new pod waits for its PVCs: a provisioner on the node binds them within 50 ms."""
STATUS_DEBOUNCE = 1.5
"""Maximum delay of a deferrable status; most pods are ready by then."""
REQUEUE_UNWATCHED = 10.0
"""Retry interval while an unlabelled object occupies a name: no watch reports its deletion."""
_MAX_DEFERRED = 4096


@dataclass(eq=False)
class SandboxReconciler:
    """Reconciles sandboxes, and tracks deferred status writes."""

    _cache: ObjectCache
    _executor: ActionExecutor
    _clock: Callable[[], datetime]
    _: KW_ONLY
    enforces_policies: bool
    cluster_domain: str = CLUSTER_DOMAIN
    unprotected_templates: Collection[ObjectKey] = ()
    largest_disk: Decimal | None = None
    """size of the largest disk in the cluster in bytes, if known"""
    _status_due: dict[str, float] = field(default_factory=dict, init=False)
    _binding_due: dict[str, float] = field(default_factory=dict, init=False)

    async def reconcile(self, sandbox: dict[str, Any]) -> float | None:
        """Reconcile once; returns the seconds until the next reconciliation, or None."""
        if _has_error(sandbox):
            await self._refresh_unrequested_service(sandbox)
        decision = reconcile_sandbox(self._observe(sandbox))
        # Only labelled pods are watched. Read the pod by name before reporting the suspension: an unlabelled
        # one may exist.
        if _becomes_suspended(sandbox, decision.status) and await self.refresh_dependents(sandbox, "Pod"):
            decision = reconcile_sandbox(self._observe(sandbox))
        changed, errors = await self._execute(decision.actions, sandbox)
        if errors:
            rejected = tuple(describe_rejection(action, error) for action, error in errors)
            failed = reconcile_sandbox(self._observe(sandbox, rejected))
            await self._executor.write_status(sandbox, failed.status)
            # The error is raised, so that the work queue retries with backoff: a quota or a webhook may
            # accept the request later. An invalid object needs another spec.
            for (_, error), one in zip(errors, rejected, strict=True):
                if not one.is_permanent:
                    raise error
            return failed.requeue_after
        creates_pod = "Pod" in [one.manifest["kind"] for one in decision.actions if isinstance(one, Create)]
        if creates_pod and await self._refresh_unrequested_service(sandbox):
            return REQUEUE_NOW
        if _patches_spec(decision.actions, sandbox):
            # Continue immediately: the watch event only repeats the response.
            return REQUEUE_NOW
        deferred = self._defer_seconds(sandbox, decision.status)
        if deferred is None and creates_pod and not has_condition(sandbox, ConditionType.READY):
            # The scheduler responds within milliseconds: write one status for both.
            return REQUEUE_AFTER_POD_CREATE
        if deferred is None and await self._executor.write_status(sandbox, decision.status):
            # Lifetimes may start with the new status.
            return REQUEUE_AFTER_POD_CREATE if creates_pod else REQUEUE_NOW
        # A response may contain a change by another client, whose watch event is then ignored.
        soon = REQUEUE_SOON if changed else None
        delays = (decision.requeue_after, self._evict_unwatched(sandbox), deferred, soon)
        shortest = min((delay for delay in delays if delay is not None), default=None)
        return None if shortest is None else max(REQUEUE_SOON, shortest)

    async def _execute(
        self, actions: Sequence[Action], sandbox: dict[str, Any]
    ) -> tuple[bool, list[tuple[Action, ApiRequestRejectedError]]]:
        """Execute actions. A rejected write about one dependent does not prevent those about the others.

        It prevents the creation of the pod, which cannot start without its PVCs, and the deletion of the
        sandbox: the pod of a deleted sandbox would keep running unseen.

        Returns:
            Whether the cache changed, and the rejected actions.
        """
        changed = False
        rejected: list[tuple[Action, ApiRequestRejectedError]] = []
        for action in actions:
            depends_on_others = (Create, "Pod"), (Delete, "Sandbox")
            if rejected and (type(action), _kind_of(action)) in depends_on_others:
                continue
            try:
                changed |= await self._executor.execute((action,), sandbox)
            except ApiRequestRejectedError as error:
                if _kind_of(action) == "Sandbox":
                    raise
                rejected.append((action, error))
        return changed, rejected

    async def refresh_dependents(self, sandbox: dict[str, Any], *kinds: str) -> bool:
        """Read the dependents by name: an object that is not watched may occupy a name.

        Returns:
            Whether the cache changed.
        """
        changed = False
        for kind, name in _dependent_names(sandbox):
            if kinds and kind not in kinds:
                continue
            obj = await self._executor.read(kind, sandbox["metadata"]["namespace"], name)
            if obj is not None:
                # Directly into the cache: the caller reconciles or requeues this sandbox itself.
                changed |= self._cache.put(obj, read_by_name=True)
        return changed

    async def _refresh_unrequested_service(self, sandbox: dict[str, Any]) -> bool:
        """Read the Service of a sandbox that requests none: no creation fails if another owner has the name.

        It is read with each new pod and while an error is reported, because unlabelled ones are not watched.

        Returns:
            Whether the cache changed.
        """
        metadata = sandbox["metadata"]
        if sandbox["spec"].get("service") is not None:
            return False
        if self._cache.get("Service", metadata["namespace"], metadata["name"]) is not None:
            return False
        return await self.refresh_dependents(sandbox, "Service")

    def _defer_seconds(self, sandbox: dict[str, Any], status: dict[str, Any] | None) -> float | None:
        """Return how long a status write can still wait; None if it is due."""
        uid, old = sandbox["metadata"]["uid"], sandbox.get("status") or {}
        now = asyncio.get_running_loop().time()
        if status is None or status == old or not is_deferrable(old, status):
            self._status_due.pop(uid, None)
            return None
        due = _due(self._status_due, uid, now + STATUS_DEBOUNCE)
        if now < due:
            return due - now
        del self._status_due[uid]
        return None

    def _observe(self, sandbox: dict[str, Any], rejected: tuple[RejectedWrite, ...] = ()) -> ObservedSandbox:
        namespace, name = sandbox["metadata"]["namespace"], sandbox["metadata"]["name"]
        tracked = self._cache.list_tracked("Pod", namespace, name_hash(name))
        pods = {pod["metadata"]["uid"]: pod for pod in tracked}
        for each in {pod_name(sandbox), name}:
            if (by_name := self._cache.get("Pod", namespace, each)) is not None:
                pods[by_name["metadata"]["uid"]] = by_name
        pvcs = {
            dependent: pvc
            for kind, dependent in _dependent_names(sandbox)
            if kind == "PersistentVolumeClaim" and (pvc := self._cache.get(kind, namespace, dependent))
        }
        return ObservedSandbox(
            sandbox=sandbox,
            pods=tuple(pods.values()),
            pvcs=pvcs,
            service=self._cache.get("Service", namespace, name),
            cluster_domain=self.cluster_domain,
            unenforced_policies=() if self.enforces_policies else self._network_policies(sandbox),
            unprotected_template=self._unprotected_template(sandbox),
            now=self._clock(),
            rejected=rejected,
            largest_disk=self.largest_disk,
            binding_seconds=self._binding_seconds(sandbox, pvcs) if not pods else 0.0,
        )

    def _binding_seconds(self, sandbox: dict[str, Any], pvcs: dict[str, dict[str, Any]]) -> float:
        """Return how long a new pod still waits for its PVCs."""
        uid, now = sandbox["metadata"]["uid"], asyncio.get_running_loop().time()
        if sum(map(is_bound, pvcs.values())) == len(sandbox["spec"].get("volumeClaimTemplates") or ()):
            self._binding_due.pop(uid, None)
            return 0.0
        return max(0.0, _due(self._binding_due, uid, now + BINDING_GRACE) - now)

    def _unprotected_template(self, sandbox: dict[str, Any]) -> str:
        """Return the name of its template, if another actor owns the network policy of the template."""
        template = (sandbox["metadata"].get("annotations") or {}).get(TEMPLATE_REF_ANNOTATION, "")
        key = ("SandboxTemplate", sandbox["metadata"]["namespace"], template)
        return template if key in self.unprotected_templates and self._cache.get(*key) is not None else ""

    def _network_policies(self, sandbox: dict[str, Any]) -> tuple[dict[str, Any], ...]:
        labels = pod_metadata(sandbox)["labels"]
        return tuple(self._cache.list_policies_selecting(sandbox["metadata"]["namespace"], labels))

    def _evict_unwatched(self, sandbox: dict[str, Any]) -> float | None:
        """Evict unlabelled dependents: nothing updates them. Returns when to read them again."""
        requeue_after = None
        for kind, name in _dependent_names(sandbox):
            obj = self._cache.get(kind, sandbox["metadata"]["namespace"], name)
            if obj is not None and NAME_HASH_LABEL not in (obj["metadata"].get("labels") or {}):
                self._cache.evict(obj)
                requeue_after = REQUEUE_UNWATCHED
        return requeue_after


def _due(times: dict[str, float], uid: str, default: float) -> float:
    """Return the due time of a sandbox; the first call sets it. Deleted sandboxes must not accumulate."""
    if len(times) > _MAX_DEFERRED:
        times.clear()
    return times.setdefault(uid, default)


def _dependent_names(sandbox: dict[str, Any]) -> list[tuple[str, str]]:
    name = sandbox["metadata"]["name"]
    return [
        *(("Pod", each) for each in dict.fromkeys((pod_name(sandbox), name))),
        ("Service", name),
        *(
            ("PersistentVolumeClaim", pvc_name((template.get("metadata") or {}).get("name", ""), name))
            for template in sandbox["spec"].get("volumeClaimTemplates") or ()
        ),
    ]


_REJECTION_PREFIXES = {
    ("Pod", Delete): "failed to delete pod: ",
    ("Pod", Patch): "failed to patch pod: ",
    ("Pod", Adopt): "failed to patch pod: ",
    ("Service", Delete): "failed to delete service: ",
    ("Service", Patch): "failed to patch owned service: ",
    ("Service", Adopt): "failed to update service with owner reference: ",
    ("PersistentVolumeClaim", Adopt): "failed to patch PVC with owner reference: ",
}


def describe_rejection(action: Action, error: ApiRequestRejectedError) -> RejectedWrite:
    """Describe a rejected write in the words of the published API; a creation in those of the API server."""
    kind = _kind_of(action)
    cause = error.cause if isinstance(error.cause, Exception) else None
    message = (parse_status(cause).message if cause else "") or error.message
    is_invalid = cause is not None and http_status(cause) == HTTPStatus.UNPROCESSABLE_ENTITY
    return RejectedWrite(
        kind=kind,
        message=_REJECTION_PREFIXES.get((kind, type(action)), "") + message,
        is_permanent=isinstance(action, Create) and is_invalid,
    )


def _kind_of(action: Action) -> str:
    return str(action.manifest["kind"]) if isinstance(action, Create) else action.target.kind


def _patches_spec(actions: Sequence[Action], sandbox: dict[str, Any]) -> bool:
    uid = sandbox["metadata"]["uid"]
    return any(
        isinstance(action, Patch) and action.target.uid == uid and "spec" in action.patch
        for action in actions
    )


def _has_error(sandbox: dict[str, Any]) -> bool:
    ready = find_condition(sandbox, ConditionType.READY)
    return bool(ready.get("reason") == SandboxReason.RECONCILER_ERROR)


def _becomes_suspended(sandbox: dict[str, Any], status: dict[str, Any] | None) -> bool:
    """Return whether the status reports the suspension: then no pod may exist under the pod's name."""
    suspended = ConditionType.SUSPENDED
    return has_condition({"status": status}, suspended) and not has_condition(sandbox, suspended)
