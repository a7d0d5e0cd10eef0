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

from holdfast.api import POD_NAME_ANNOTATION, ConditionType, OperatingMode, ShutdownPolicy
from holdfast.sandbox import dependents, lifecycle, manifests, network_policy, status
from holdfast.sandbox.actions import Action, Create, Decision, Delete, Patch
from holdfast.sandbox.conditions import (
    SandboxFacts,
    expired_condition,
    sandbox_conditions,
    suspended_condition,
)
from holdfast.sandbox.explanation import explain_pod
from holdfast.sandbox.manifests import is_controlled_by
from holdfast.sandbox.status import ConditionUpdate, is_being_deleted

if TYPE_CHECKING:
    from collections.abc import Iterable

CLUSTER_DOMAIN = "cluster.local"


class RejectedWrite(msgspec.Struct, frozen=True, kw_only=True):
    """A write about a dependent that the API server rejected.

    Attributes:
        kind: kind of the dependent.
        message: the error as the published API words it.
        is_permanent: whether the API server will never accept the object of this spec.
    """

    kind: str
    message: str
    is_permanent: bool = False


class ObservedSandbox(msgspec.Struct, frozen=True, kw_only=True):
    """State of one sandbox and its objects, as the API server has them.

    Attributes:
        sandbox: the Sandbox object.
        now: the current time.
        pods: pods that the sandbox owns, or that have its pod's name.
        pvcs: existing PVCs by name.
        service: the Service with the sandbox's name, if it exists.
        cluster_domain: domain of the cluster's Services.
        unenforced_policies: network policies that the cluster does not enforce.
        unprotected_template: the sandbox's template, if another NetworkPolicy has the name of its policy.
        largest_disk: bytes of the cluster's largest disk, if known.
        binding_seconds: how long a new pod still waits for its PVCs to be bound.
        rejected: writes of the last decision that the API server rejected. The status then reports them.
    """

    sandbox: dict[str, Any]
    now: datetime
    pods: tuple[dict[str, Any], ...] = ()
    pvcs: dict[str, dict[str, Any]] = {}
    service: dict[str, Any] | None = None
    cluster_domain: str = CLUSTER_DOMAIN
    unenforced_policies: tuple[dict[str, Any], ...] = ()
    unprotected_template: str = ""
    largest_disk: Decimal | None = None
    binding_seconds: float = 0.0
    rejected: tuple[RejectedWrite, ...] = ()


class _PodOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """What to do about the pod.

    Attributes:
        outcome: writes, error and explanation.
        pod: the pod that the sandbox owns, or is about to.
        requeue_after: seconds until the next reconciliation.
        is_waiting: whether to create the pod later, and to report nothing until then.
    """

    outcome: dependents.Outcome = dependents.Outcome()
    pod: dict[str, Any] | None = None
    requeue_after: float | None = None
    is_waiting: bool = False


def reconcile_sandbox(observed: ObservedSandbox) -> Decision:
    """Decide how to bring a sandbox from its observed to its desired state."""
    if is_being_deleted(observed.sandbox):
        return Decision()
    if lifecycle.seconds_until_shutdown(observed.sandbox, observed.now) == 0:
        return _reconcile_expired(observed)
    owned = _owned_pods(observed)
    pvcs = dependents.reconcile_pvcs(observed.sandbox, observed.pvcs, observed.largest_disk)
    pod, service = _PodOutcome(), dependents.Outcome()
    # With several pods, neither the pod nor the Service is touched until a user has chosen one.
    if len(owned) <= 1:
        pod = _reconcile_pod(observed, owned[0] if owned else None, may_create=not pvcs.blocks_pod)
        service = dependents.reconcile_service(observed.sandbox, observed.service)
    volumes_and_pod = (*pvcs.actions, *pod.outcome.actions)
    if _is_suspend_requested(observed.sandbox):
        # The pod goes first: a PVC that cannot be created must not prevent the suspension.
        volumes_and_pod = (*pod.outcome.actions, *pvcs.actions)
    actions = (*volumes_and_pod, *service.actions)
    if pod.is_waiting:
        return Decision(actions=actions, requeue_after=pod.requeue_after)
    facts = _collect_facts(observed, pod, [pvcs, pod.outcome, service], owned_pods=len(owned))
    explanation = pvcs.explanation or pod.outcome.explanation or service.explanation
    conditions = (*sandbox_conditions(facts), *((explanation,) if explanation is not None else ()))
    waits = (pod.requeue_after, lifecycle.seconds_until_shutdown(observed.sandbox, observed.now) or None)
    return Decision(
        actions=actions,
        status=_build_status(observed, conditions, facts),
        requeue_after=min((wait for wait in waits if wait is not None), default=None),
    )


def _collect_facts(
    observed: ObservedSandbox, pod: _PodOutcome, outcomes: Iterable[dependents.Outcome], *, owned_pods: int
) -> SandboxFacts:
    sandbox, rejected = observed.sandbox, observed.rejected
    has_service = observed.service is not None and is_controlled_by(observed.service, sandbox)
    requested = sandbox["spec"].get("service")
    return SandboxFacts(
        is_suspend_requested=_is_suspend_requested(sandbox),
        pod=pod.pod,
        owned_pods=owned_pods,
        has_foreign_pod=pod.pod is None and owned_pods == 0 and _named_pod(observed) is not None,
        recreates_pod=lifecycle.recreates_failed_pods(sandbox),
        errors=(
            *(outcome.error for outcome in outcomes if outcome.error),
            *(one.message for one in rejected if not one.is_permanent),
        ),
        has_pod_error=owned_pods > 1 or bool(pod.outcome.error) or any(one.kind == "Pod" for one in rejected),
        invalid="\n".join(one.message for one in rejected if one.is_permanent),
        requires_service=bool(requested) or (requested is None and has_service),
        has_service=has_service,
    )


def _reconcile_pod(
    observed: ObservedSandbox, owned: dict[str, Any] | None, *, may_create: bool
) -> _PodOutcome:
    pod = owned or _named_pod(observed)
    result = _PodOutcome()
    if _is_suspend_requested(observed.sandbox):
        result = _suspend_pod(observed, pod)
    elif pod is None:
        result = _create_pod(observed, may_create=may_create)
    elif owned is None:
        outcome = dependents.take_ownership("pod", pod, observed.sandbox)
        result = _PodOutcome(outcome=outcome, pod=pod if outcome.actions else None)
    else:
        result = _reconcile_owned_pod(observed, owned)
    corrections = _pod_name_correction(observed.sandbox, pod)
    if not corrections:
        return result
    outcome = msgspec.structs.replace(result.outcome, actions=(*corrections, *result.outcome.actions))
    return msgspec.structs.replace(result, outcome=outcome)


def _pod_name_correction(sandbox: dict[str, Any], pod: dict[str, Any] | None) -> tuple[Action, ...]:
    """Remove an annotation that names another pod than the sandbox's, or any during suspension."""
    recorded = (sandbox["metadata"].get("annotations") or {}).get(POD_NAME_ANNOTATION)
    is_valid = pod is not None and pod["metadata"]["name"] == recorded
    if recorded is None or (is_valid and not _is_suspend_requested(sandbox)):
        return ()
    return (Patch.of(sandbox, {"metadata": {"annotations": {POD_NAME_ANNOTATION: None}}}),)


def _create_pod(observed: ObservedSandbox, *, may_create: bool) -> _PodOutcome:
    if not may_create or any(one.kind in ("Pod", "PersistentVolumeClaim") for one in observed.rejected):
        return _PodOutcome()
    if observed.binding_seconds > 0:
        # The scheduler checks once a second whether the volumes of a pod are bound, the first time after a
        # second. A pod that is created after the binding starts without that wait.
        return _PodOutcome(requeue_after=observed.binding_seconds, is_waiting=True)
    manifest = manifests.pod_manifest(observed.sandbox)
    return _PodOutcome(outcome=dependents.Outcome(actions=(Create(manifest=manifest),)), pod=manifest)


def _reconcile_owned_pod(observed: ObservedSandbox, pod: dict[str, Any]) -> _PodOutcome:
    explanation = explain_pod(pod)
    if is_being_deleted(pod):
        return _PodOutcome(pod=pod, outcome=dependents.Outcome(explanation=explanation))
    actions, requeue_after = _pod_actions(observed, pod)
    return _PodOutcome(
        outcome=dependents.Outcome(actions=actions, explanation=explanation),
        pod=pod,
        requeue_after=requeue_after,
    )


def _pod_actions(observed: ObservedSandbox, pod: dict[str, Any]) -> tuple[tuple[Action, ...], float | None]:
    """Writes about an existing pod, and the seconds until the next reconciliation."""
    sandbox, phase = observed.sandbox, status.pod_phase(pod)
    patch = manifests.pod_metadata_patch(pod, sandbox)
    actions: tuple[Action, ...] = (Patch.of(pod, patch),) if patch else ()
    if phase == "Failed" and lifecycle.recreates_failed_pods(sandbox):
        wait = lifecycle.seconds_until_recreation(pod, sandbox, observed.now)
        return (actions if wait > 0 else lifecycle.replacement_actions(pod, sandbox)), wait or None
    if phase in ("Failed", "Succeeded"):
        return actions, None
    idle_left = lifecycle.seconds_until_idle_suspend(sandbox, observed.now)
    if idle_left == 0:
        # Bound to the observed version: a use recorded at this moment must keep the sandbox running.
        metadata = {"resourceVersion": sandbox["metadata"].get("resourceVersion")}
        suspend = {"metadata": metadata, "spec": {"operatingMode": OperatingMode.SUSPENDED.value}}
        actions += (Patch.of(sandbox, suspend),)
    return actions, idle_left or None


def _is_suspend_requested(sandbox: dict[str, Any]) -> bool:
    return bool(sandbox["spec"].get("operatingMode") == OperatingMode.SUSPENDED)


def _suspend_pod(observed: ObservedSandbox, pod: dict[str, Any] | None) -> _PodOutcome:
    """Delete the sandbox's pod; a pod of another owner is left alone."""
    if pod is None:
        return _PodOutcome()
    if not is_controlled_by(pod, observed.sandbox):
        waits = None
        if dependents.is_leftover(pod, observed.sandbox):
            waits = dependents.take_ownership("pod", pod, observed.sandbox).explanation
        return _PodOutcome(outcome=dependents.Outcome(explanation=waits))
    actions = () if is_being_deleted(pod) else (Delete.of(pod),)
    return _PodOutcome(outcome=dependents.Outcome(actions=actions), pod=pod)


def _reconcile_expired(observed: ObservedSandbox) -> Decision:
    """Report the expiry, then delete the pod and the Service, then apply the shutdown policy.

    The policy Retain keeps the PVCs. With Delete, the garbage collector deletes those of the sandbox.
    """
    sandbox, owned = observed.sandbox, _owned_pods(observed)
    was_marked = lifecycle.is_marked_expired(sandbox)
    conditions = status.updated_conditions(sandbox, _expired_conditions(observed, owned), observed.now)
    # Report first: clients must see why the pod disappears, also after a crash between the writes.
    if not was_marked:
        return Decision(status={**(sandbox.get("status") or {}), "conditions": conditions}, requeue_after=0.0)
    actions: list[Action] = [Delete.of(pod) for pod in owned if not is_being_deleted(pod)]
    if observed.service is not None and is_controlled_by(observed.service, sandbox):
        actions.append(Delete.of(observed.service))
    # The Sandbox goes last. If the controller crashes before, the next reconciliation repeats what is
    # missing.
    if sandbox["spec"].get("shutdownPolicy", ShutdownPolicy.RETAIN) == ShutdownPolicy.DELETE:
        actions.append(Delete.of(sandbox))
    return Decision(actions=tuple(actions), status={"conditions": conditions})


def _expired_conditions(observed: ObservedSandbox, owned: list[dict[str, Any]]) -> list[ConditionUpdate]:
    """Finished and Suspended stay as they were before the expiry."""
    sandbox = observed.sandbox
    kept = [
        update
        for kind in (ConditionType.SUSPENDED, ConditionType.FINISHED)
        if (update := status.repeated_condition(sandbox, kind)) is not None
    ]
    if not any(update.type is ConditionType.SUSPENDED for update in kept):
        facts = SandboxFacts(
            is_suspend_requested=_is_suspend_requested(sandbox),
            pod=owned[0] if owned else None,
            has_foreign_pod=not owned and _named_pod(observed) is not None,
        )
        kept.append(suspended_condition(facts))
    return [*kept, expired_condition()]


def _owned_pods(observed: ObservedSandbox) -> list[dict[str, Any]]:
    return [pod for pod in observed.pods if is_controlled_by(pod, observed.sandbox)]


def _named_pod(observed: ObservedSandbox) -> dict[str, Any] | None:
    """The pod that the annotation names, else the one with the sandbox's name."""
    by_name = {pod["metadata"]["name"]: pod for pod in observed.pods}
    recorded = by_name.get(manifests.pod_name(observed.sandbox))
    return recorded or by_name.get(observed.sandbox["metadata"]["name"])


def _build_status(
    observed: ObservedSandbox, conditions: tuple[ConditionUpdate, ...], facts: SandboxFacts
) -> dict[str, Any]:
    sandbox, metadata = observed.sandbox, observed.sandbox["metadata"]
    old = sandbox.get("status") or {}
    policy_condition = network_policy.not_protected_condition(
        manifests.pod_metadata(sandbox)["labels"], observed.unprotected_template, observed.unenforced_policies
    )
    if policy_condition is not None:
        conditions = (*conditions, policy_condition)
    new: dict[str, Any] = {"conditions": status.updated_conditions(sandbox, conditions, observed.now)}
    if old.get("selector") or facts.pod is not None or facts.owned_pods or facts.has_foreign_pod:
        new["selector"] = manifests.tracking_selector(metadata["name"])
    if facts.pod is not None:
        if ips := status.pod_ips(facts.pod):
            new["podIPs"] = ips
        if node := (facts.pod.get("spec") or {}).get("nodeName"):
            new["nodeName"] = node
    if facts.owned_pods > 1:
        return {**new, **{key: old[key] for key in ("service", "serviceFQDN") if key in old}}
    if facts.has_service and sandbox["spec"].get("service") is not False:
        new["service"] = metadata["name"]
        new["serviceFQDN"] = f"{metadata['name']}.{metadata['namespace']}.svc.{observed.cluster_domain}"
    return new
