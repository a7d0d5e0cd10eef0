"""Reconciliation of one sandbox, without I/O.

    decision = reconcile_sandbox(ObservedSandbox(sandbox=…, pods=…, pvcs=…, service=…, now=…))

It is level-triggered: it uses only observed state, so that a restarted controller decides the same. The
controller executes the decision.
"""

from __future__ import annotations

from datetime import datetime  # noqa: TC003 (msgspec evaluates the annotations)
from decimal import Decimal  # noqa: TC003 (msgspec evaluates the annotations)
from typing import TYPE_CHECKING, Any

import msgspec

from holdfast.api import GROUP, ConditionType, OperatingMode, SandboxReason, ShutdownPolicy
from holdfast.kube import parse_quantity
from holdfast.sandbox import lifecycle, manifests, network_policy, status
from holdfast.sandbox.actions import Action, Adopt, Create, Decision, Delete, Patch
from holdfast.sandbox.manifests import is_controlled_by
from holdfast.sandbox.status import ConditionUpdate, is_being_deleted, not_ready_condition

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

CLUSTER_DOMAIN = "cluster.local"
UNENFORCED_STORAGE_CLASSES = ("local-path",)
"""Storage classes that create plain directories and do not limit their size."""
_GIB = 2**30
_NOT_SUSPENDED = ConditionUpdate(ConditionType.SUSPENDED, "False", SandboxReason.NOT_SUSPENDED)


class ObservedSandbox(msgspec.Struct, frozen=True, kw_only=True):
    """State of one sandbox and its objects, as the API server has them.

    Attributes:
        sandbox: the Sandbox object.
        now: the current time.
        pods: pods that the sandbox owns, or that have its pod's name.
        pvcs: existing PVCs by name.
        service: the Service with the sandbox's name, if it exists.
        unenforced_policies: network policies that the cluster does not enforce.
        unprotected_template: the sandbox's template, if another NetworkPolicy has the name of its policy.
        largest_disk: bytes of the cluster's largest disk, if known.
        binding_seconds: how long a new pod still waits for its PVCs to be bound.
        api_error: why the API server rejected the last decision. The new decision then only reports it.
    """

    sandbox: dict[str, Any]
    now: datetime
    pods: tuple[dict[str, Any], ...] = ()
    pvcs: dict[str, dict[str, Any]] = {}
    service: dict[str, Any] | None = None
    unenforced_policies: tuple[dict[str, Any], ...] = ()
    unprotected_template: str = ""
    largest_disk: Decimal | None = None
    binding_seconds: float = 0.0
    api_error: str = ""


def reconcile_sandbox(observed: ObservedSandbox) -> Decision:
    """Decide how to bring a sandbox from its observed to its desired state."""
    if is_being_deleted(observed.sandbox):
        return Decision()
    if lifecycle.seconds_until_shutdown(observed.sandbox, observed.now) == 0:
        return _reconcile_expired(observed)
    pvc_actions, pvc_problem = _reconcile_pvcs(observed)
    service_actions, service_problem = _reconcile_service(observed)
    api_problem = _error_condition(observed.api_error) if observed.api_error else None
    owned = _owned_pods(observed)
    if len(owned) > 1:
        message = f"{len(owned)} pods belong to this sandbox; delete all but one"
        unknown = ConditionUpdate(ConditionType.SUSPENDED, "Unknown", SandboxReason.POD_STATE_UNKNOWN)
        return _build_decision(
            observed, (), not_ready_condition(SandboxReason.MULTIPLE_PODS, message), unknown
        )
    pod = owned[0] if owned else _find_pod_by_name(observed)
    if _is_suspend_requested(observed.sandbox):
        # The pod goes first: a PVC that cannot be created must not prevent the suspension.
        decision = _reconcile_suspended(observed, pod)
        actions = (*decision.actions, *pvc_actions, *service_actions)
    else:
        decision = _reconcile_running(observed, pod, _most_severe(api_problem, pvc_problem, service_problem))
        # The pod goes last: an error ends the sequence, and a pod without its PVCs cannot start.
        actions = (*pvc_actions, *service_actions, *decision.actions)
    return msgspec.structs.replace(decision, actions=actions)


def _reconcile_running(
    observed: ObservedSandbox, pod: dict[str, Any] | None, problem: ConditionUpdate | None
) -> Decision:
    if problem is not None:
        return _build_decision(observed, (), problem, _NOT_SUSPENDED, pod=pod)
    if pod is None:
        return _reconcile_missing_pod(observed)
    adoption, problem = _take_ownership("pod", pod, observed.sandbox)
    if problem is not None:
        return _build_decision(observed, (), problem, _NOT_SUSPENDED)
    if adoption:
        waiting = _waiting_condition("adopting the pod")
        return _build_decision(observed, tuple(adoption), waiting, _NOT_SUSPENDED, pod=pod)
    if is_being_deleted(pod):
        waiting = _waiting_condition("waiting for the old pod to terminate")
        return _build_decision(observed, (), waiting, _NOT_SUSPENDED, pod=pod)
    is_finished = status.pod_phase(pod) in ("Succeeded", "Failed")
    return (_reconcile_finished_pod if is_finished else _reconcile_active_pod)(observed, pod)


def _reconcile_missing_pod(observed: ObservedSandbox) -> Decision:
    if observed.binding_seconds > 0:
        # The scheduler checks once a second whether the volumes of a pod are bound, the first time after a
        # second. A pod that is created after the binding starts without that wait.
        return Decision(requeue_after=observed.binding_seconds)
    create = Create(manifest=manifests.pod_manifest(observed.sandbox))
    return _build_decision(observed, (create,), _waiting_condition("creating the pod"), _NOT_SUSPENDED)


def _reconcile_active_pod(observed: ObservedSandbox, pod: dict[str, Any]) -> Decision:
    patch = manifests.pod_metadata_patch(pod, observed.sandbox)
    actions: tuple[Action, ...] = (Patch.of(pod, patch),) if patch else ()
    idle_left = lifecycle.seconds_until_idle_suspend(observed.sandbox, observed.now)
    if idle_left == 0:
        # Bound to the observed version: a use recorded at this moment must keep the sandbox running.
        metadata = {"resourceVersion": observed.sandbox["metadata"].get("resourceVersion")}
        suspend = {"metadata": metadata, "spec": {"operatingMode": OperatingMode.SUSPENDED.value}}
        actions += (Patch.of(observed.sandbox, suspend),)
    conditions = (_ready_condition(observed, pod), _NOT_SUSPENDED, status.pod_scheduled_condition(pod))
    return _build_decision(observed, actions, *conditions, pod=pod, requeue_after=idle_left or None)


def _ready_condition(observed: ObservedSandbox, pod: dict[str, Any]) -> ConditionUpdate:
    if not status.is_pod_ready(pod):
        return _waiting_condition(status.not_ready_message(pod))
    if observed.sandbox["spec"].get("service") and observed.service is None:
        return _waiting_condition("creating the Service")
    return ConditionUpdate(ConditionType.READY, "True", SandboxReason.DEPENDENCIES_READY, "the pod is ready")


def _reconcile_finished_pod(observed: ObservedSandbox, pod: dict[str, Any]) -> Decision:
    """Report how the pod ended; recreate a failed one with backoff, unless the sandbox keeps failed pods."""
    failed = status.pod_phase(pod) == "Failed"
    reason = SandboxReason.POD_FAILED if failed else SandboxReason.POD_SUCCEEDED
    message = status.termination_message(pod)
    conditions = (
        not_ready_condition(reason, message),
        ConditionUpdate(ConditionType.FINISHED, "True", reason, message),
        _NOT_SUSPENDED,
        status.pod_scheduled_condition(pod),
    )
    if not failed or not lifecycle.recreates_failed_pods(observed.sandbox):
        return _build_decision(observed, (), *conditions, pod=pod)
    wait = lifecycle.seconds_until_recreation(pod, observed.sandbox, observed.now)
    actions = () if wait > 0 else lifecycle.replacement_actions(pod, observed.sandbox)
    return _build_decision(observed, actions, *conditions, pod=pod, requeue_after=wait or None)


def _is_suspend_requested(sandbox: dict[str, Any]) -> bool:
    return bool(sandbox["spec"].get("operatingMode") == OperatingMode.SUSPENDED)


def _reconcile_suspended(observed: ObservedSandbox, pod: dict[str, Any] | None) -> Decision:
    ready = not_ready_condition(
        SandboxReason.SANDBOX_SUSPENDED, "the sandbox is suspended; its workspace is kept"
    )
    is_ours = pod is not None and is_controlled_by(pod, observed.sandbox)
    actions = (Delete.of(pod),) if pod is not None and is_ours and not is_being_deleted(pod) else ()
    return _build_decision(observed, actions, ready, _suspended_condition(observed, pod))


def _suspended_condition(observed: ObservedSandbox, pod: dict[str, Any] | None) -> ConditionUpdate:
    """Progress of a requested suspension."""
    if pod is None:
        return ConditionUpdate(ConditionType.SUSPENDED, "True", SandboxReason.POD_TERMINATED)
    if not is_controlled_by(pod, observed.sandbox) and not _is_leftover(pod, observed.sandbox):
        message = (
            f"pod {pod['metadata']['name']} does not belong to this sandbox: {manifests.describe_owner(pod)}"
        )
        return ConditionUpdate(ConditionType.SUSPENDED, "False", SandboxReason.POD_NOT_OWNED, message)
    return ConditionUpdate(ConditionType.SUSPENDED, "False", SandboxReason.POD_TERMINATING)


def _reconcile_expired(observed: ObservedSandbox) -> Decision:
    """Report the expiry, then delete the pod and the Service, then apply the shutdown policy.

    The policy Retain keeps the PVCs. With Delete, the garbage collector deletes those of the sandbox.
    """
    ready = not_ready_condition(SandboxReason.SANDBOX_EXPIRED, "the sandbox has expired")
    owned, suspended = _owned_pods(observed), _NOT_SUSPENDED
    if _is_suspend_requested(observed.sandbox):
        suspended = _suspended_condition(observed, owned[0] if owned else _find_pod_by_name(observed))
    # Report first: clients must see why the pod disappears, also after a crash between the writes.
    if not lifecycle.is_marked_expired(observed.sandbox):
        return msgspec.structs.replace(_build_decision(observed, (), ready, suspended), requeue_after=0.0)
    actions: list[Action] = [Delete.of(pod) for pod in owned if not is_being_deleted(pod)]
    if observed.service is not None and is_controlled_by(observed.service, observed.sandbox):
        actions.append(Delete.of(observed.service))
    # The Sandbox goes last. If the controller crashes before, the next reconciliation repeats what is
    # missing.
    if observed.sandbox["spec"].get("shutdownPolicy", ShutdownPolicy.RETAIN) == ShutdownPolicy.DELETE:
        actions.append(Delete.of(observed.sandbox))
    return _build_decision(observed, tuple(actions), ready, suspended)


def _reconcile_pvcs(observed: ObservedSandbox) -> tuple[list[Action], ConditionUpdate | None]:
    actions: list[Action] = []
    for manifest in manifests.pvc_manifests(observed.sandbox):
        name = manifest["metadata"]["name"]
        pvc = observed.pvcs.get(name)
        if pvc is None:
            actions.append(Create(manifest=manifest))
            if _exceeds_disk(manifest, observed.largest_disk):
                # Whether this fails depends on the storage class, which is known once the PVC exists. A pod
                # would bind the PVC before that.
                return actions, _error_condition(f"creating PVC {name}")
            continue
        if _is_foreign_leftover(pvc, observed.sandbox):
            return actions, _leftover_condition("PVC", pvc)
        if message := capacity_error(pvc, observed.largest_disk):
            return actions, _error_condition(message)
        adoption, problem = _take_ownership("PVC", pvc, observed.sandbox)
        actions += adoption
        if problem is not None:
            return actions, problem
    return actions, None


def _reconcile_service(observed: ObservedSandbox) -> tuple[list[Action], ConditionUpdate | None]:
    enabled, service = observed.sandbox["spec"].get("service"), observed.service
    if enabled is None:
        return [], None
    if service is None:
        return ([Create(manifest=manifests.service_manifest(observed.sandbox))] if enabled else []), None
    if not enabled:
        return ([Delete.of(service)] if is_controlled_by(service, observed.sandbox) else []), None
    return _take_ownership("Service", service, observed.sandbox)


def _take_ownership(
    kind: str, obj: dict[str, Any], sandbox: dict[str, Any]
) -> tuple[list[Action], ConditionUpdate | None]:
    """The adoption of an existing object, if it is necessary, or the condition if it is not allowed."""
    if _is_foreign_leftover(obj, sandbox):
        return [], _leftover_condition(kind, obj)
    ownership = manifests.resolve_ownership(obj, sandbox)
    if ownership is manifests.Ownership.FOREIGN:
        owner = manifests.describe_owner(obj)
        return [], _error_condition(f"{kind} {obj['metadata']['name']} already exists: {owner}")
    return ([Adopt.of(obj, sandbox)] if ownership is manifests.Ownership.ADOPTABLE else []), None


def _is_foreign_leftover(obj: dict[str, Any], sandbox: dict[str, Any]) -> bool:
    return not is_controlled_by(obj, sandbox) and _is_leftover(obj, sandbox)


def _is_leftover(obj: dict[str, Any], sandbox: dict[str, Any]) -> bool:
    """Whether an object is about to disappear: it is being deleted, or belongs to a previous sandbox.

    Names are unique, so a Sandbox with this name and another UID is gone, and the garbage collector deletes
    its objects.
    """
    owner = manifests.controller_of(obj) or {}
    same_name = (owner.get("kind"), owner.get("name")) == ("Sandbox", sandbox["metadata"]["name"])
    return is_being_deleted(obj) or (same_name and owner.get("apiVersion", "").startswith(f"{GROUP}/"))


def _leftover_condition(kind: str, obj: dict[str, Any]) -> ConditionUpdate:
    return _waiting_condition(f"the previous {kind} {obj['metadata']['name']} is still being deleted")


def _error_condition(message: str) -> ConditionUpdate:
    return not_ready_condition(SandboxReason.RECONCILER_ERROR, message)


def _waiting_condition(message: str) -> ConditionUpdate:
    return not_ready_condition(SandboxReason.DEPENDENCIES_NOT_READY, message)


def _most_severe(*conditions: ConditionUpdate | None) -> ConditionUpdate | None:
    """The first error, else the first condition that reports waiting."""
    present = [condition for condition in conditions if condition is not None]
    return min(present, key=lambda one: one.reason != SandboxReason.RECONCILER_ERROR, default=None)


def _owned_pods(observed: ObservedSandbox) -> list[dict[str, Any]]:
    return [pod for pod in observed.pods if is_controlled_by(pod, observed.sandbox)]


def _find_pod_by_name(observed: ObservedSandbox) -> dict[str, Any] | None:
    name = manifests.pod_name(observed.sandbox)
    return next((pod for pod in observed.pods if pod["metadata"]["name"] == name), None)


def _build_decision(
    observed: ObservedSandbox,
    actions: tuple[Action, ...],
    *conditions: ConditionUpdate,
    pod: dict[str, Any] | None = None,
    requeue_after: float | None = None,
) -> Decision:
    sandbox, metadata = observed.sandbox, observed.sandbox["metadata"]
    policy_condition = network_policy.not_protected_condition(
        manifests.pod_metadata(sandbox)["labels"], observed.unprotected_template, observed.unenforced_policies
    )
    if policy_condition is not None:
        conditions = (*conditions, policy_condition)
    new: dict[str, Any] = {
        "conditions": status.updated_conditions(sandbox, conditions, observed.now),
        "selector": manifests.tracking_selector(metadata["name"]),
    }
    # A terminating pod keeps its addresses until it is gone; clients must not connect to it any more.
    if pod is not None and not is_being_deleted(pod):
        if ips := status.pod_ips(pod):
            new["podIPs"] = ips
        if node := (pod.get("spec") or {}).get("nodeName"):
            new["nodeName"] = node
    if observed.service is not None and is_controlled_by(observed.service, sandbox):
        new["service"] = metadata["name"]
        new["serviceFQDN"] = f"{metadata['name']}.{metadata['namespace']}.svc.{CLUSTER_DOMAIN}"
    waits = (requeue_after, lifecycle.seconds_until_shutdown(sandbox, observed.now) or None)
    soonest = min((wait for wait in waits if wait is not None), default=None)
    return Decision(actions=actions, status=new, requeue_after=soonest)


def largest_disk(nodes: Iterable[Mapping[str, Any]]) -> Decimal | None:
    """Bytes of the largest disk among the nodes; None if no node reports its capacity."""
    reported = [(node.get("status") or {}).get("capacity", {}).get("ephemeral-storage") for node in nodes]
    return max((size for text in reported if (size := parse_quantity(text)) is not None), default=None)


def capacity_error(pvc: Mapping[str, Any], largest: Decimal | None) -> str:
    """Explain why a PVC cannot have its size on any disk.

    Returns:
        The message; empty if the PVC is bound, fits, or has a storage class that checks sizes itself.
    """
    unenforced = pvc["spec"].get("storageClassName") in UNENFORCED_STORAGE_CLASSES
    if is_bound(pvc) or largest is None or not unenforced or not _exceeds_disk(pvc, largest):
        return ""
    size, disk = _requested_storage(pvc), largest / _GIB
    return f"PVC {pvc['metadata']['name']} requests {size}, but the largest disk has {disk:.0f} GiB"


def is_bound(pvc: Mapping[str, Any]) -> bool:
    """Report whether a PVC has its volume."""
    return bool((pvc.get("status") or {}).get("phase") == "Bound")


def _exceeds_disk(pvc: Mapping[str, Any], largest: Decimal | None) -> bool:
    size = parse_quantity(_requested_storage(pvc))
    return largest is not None and size is not None and size > largest


def _requested_storage(pvc: Mapping[str, Any]) -> Any:
    return ((pvc["spec"].get("resources") or {}).get("requests") or {}).get("storage")
