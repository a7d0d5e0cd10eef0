"""Pure functions that convert sandboxes, SandboxClaims and PVCs to the models of the API."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from holdfast.api import (
    EXTENSIONS_API_VERSION,
    SANDBOX_ID_LABEL,
    TEMPLATE_REF_ANNOTATION,
    Condition,
    ConditionType as ConditionType,  # noqa: PLC0414
    OperatingMode,
    Phase,
    SandboxClaimReason,
    SandboxReason,
    SandboxView,
    WorkspaceView,
)
from holdfast.sandbox import (
    UNENFORCED_STORAGE_CLASSES,
    VOLUME_NAME,
    controller_of,
    pod_name,
    pvc_name,
    recreates_failed_pods,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

_WAITING_CONTAINER = re.compile(r"container [^:]+: ([A-Z][A-Za-z]+)(?:: |$)")
_TERMINAL_PHASES = {
    SandboxReason.SANDBOX_EXPIRED: Phase.EXPIRED,
    SandboxReason.POD_SUCCEEDED: Phase.FINISHED,
    SandboxReason.POD_FAILED: Phase.FAILED,
}
_PHASE_CONDITIONS = {member.value for member in ConditionType} - {ConditionType.NETWORK_POLICY_ENFORCED.value}
"""Condition types that the phase already reflects; all others become notes."""
SIZE_NOT_ENFORCED_NOTE = (
    "the size of the workspace is not enforced: it can use all free space on the node's disk"
)


def present_sandbox(
    sandbox: Mapping[str, Any],
    workspace_pvc: Mapping[str, Any] | None = None,
    sandbox_claim: Mapping[str, Any] | None = None,
) -> SandboxView:
    """Convert a sandbox.

    Args:
        sandbox: The Sandbox object.
        workspace_pvc: The PVC of its workspace.
        sandbox_claim: The SandboxClaim that owns it.
    """
    metadata, status = sandbox["metadata"], sandbox.get("status") or {}
    phase, reason, message = sandbox_phase(sandbox)
    ips = [str(ip) for ip in status.get("podIPs") or ()]
    claim = sandbox_claim_name(sandbox)
    workspace = _present_workspace(sandbox, workspace_pvc)
    annotations = metadata.get("annotations") or {}
    return SandboxView(
        name=claim or metadata["name"],
        id=(metadata.get("labels") or {}).get(SANDBOX_ID_LABEL) or metadata.get("uid", ""),
        phase=phase,
        reason=reason,
        message=message,
        image=_container_image(sandbox),
        pod=pod_name(sandbox) if ips else None,
        pod_ip=ips[0] if ips else None,
        pod_ips=ips,
        node=status.get("nodeName"),
        workspace=workspace,
        conditions=[_present_condition(condition) for condition in status.get("conditions") or ()],
        labels=dict(metadata.get("labels") or {}),
        created=metadata.get("creationTimestamp"),
        shutdown_time=_shutdown_time(sandbox_claim) if sandbox_claim else sandbox["spec"].get("shutdownTime"),
        claim=claim,
        template=annotations.get(TEMPLATE_REF_ANNOTATION),
        failed_pods="Recreate" if recreates_failed_pods(sandbox) else "Keep",
        notes=_notes(sandbox, workspace),
    )


def present_sandbox_claim(sandbox_claim: Mapping[str, Any]) -> SandboxView:
    """Convert a SandboxClaim that has no sandbox yet."""
    metadata = sandbox_claim["metadata"]
    ready = _find_condition(sandbox_claim, ConditionType.READY)
    deleting = bool(metadata.get("deletionTimestamp"))
    expired = ready.get("reason") == "ClaimExpired"
    phase = Phase.DELETING if deleting else Phase.EXPIRED if expired else Phase.PENDING
    return SandboxView(
        name=metadata["name"],
        id=(metadata.get("labels") or {}).get(SANDBOX_ID_LABEL) or metadata.get("uid", ""),
        phase=phase,
        reason=ready.get("reason", ""),
        message=ready.get("message", ""),
        conditions=[
            _present_condition(condition)
            for condition in (sandbox_claim.get("status") or {}).get("conditions") or ()
        ],
        labels=dict(metadata.get("labels") or {}),
        created=metadata.get("creationTimestamp"),
        shutdown_time=_shutdown_time(sandbox_claim),
        claim=metadata["name"],
    )


def _shutdown_time(sandbox_claim: Mapping[str, Any]) -> str | None:
    return (sandbox_claim["spec"].get("lifecycle") or {}).get("shutdownTime")


def has_no_sandbox(sandbox_claim: Mapping[str, Any]) -> bool:
    """Return whether a SandboxClaim is not bound yet, or has lost its sandbox."""
    reason = _find_condition(sandbox_claim, ConditionType.READY).get("reason")
    bound = ((sandbox_claim.get("status") or {}).get("sandbox") or {}).get("name")
    return not bound or reason in (SandboxClaimReason.CLAIM_EXPIRED, SandboxClaimReason.SANDBOX_MISSING)


def sandbox_phase(sandbox: Mapping[str, Any]) -> tuple[Phase, str, str]:
    """Return the phase of a sandbox with its reason and message."""
    metadata, ready = sandbox["metadata"], _find_condition(sandbox, ConditionType.READY)
    if metadata.get("deletionTimestamp"):
        return Phase.DELETING, str(ready.get("reason") or ""), "the sandbox is being deleted"
    if not ready:
        return Phase.PENDING, "", "the controller has not seen the sandbox yet"
    if ready.get("observedGeneration", 0) < metadata.get("generation", 0):
        return Phase.PENDING, "", "the controller has not seen the latest change yet"
    if (
        sandbox["spec"].get("operatingMode") == OperatingMode.SUSPENDED
        and ready.get("reason") not in _TERMINAL_PHASES
    ):
        return _suspended_phase(ready, _find_condition(sandbox, ConditionType.SUSPENDED))
    return _running_phase(ready, _find_condition(sandbox, ConditionType.POD_SCHEDULED))


def _running_phase(ready: Mapping[str, Any], scheduled: Mapping[str, Any]) -> tuple[Phase, str, str]:
    reason, message = str(ready.get("reason") or ""), str(ready.get("message") or "")
    if ready.get("status") == "True":
        return Phase.READY, reason, message
    if reason in _TERMINAL_PHASES:
        return _TERMINAL_PHASES[SandboxReason(reason)], reason, message
    # The reason of the container or the scheduler is more specific than DependenciesNotReady.
    waiting = _WAITING_CONTAINER.match(message)
    if (
        waiting is None
        and reason == SandboxReason.DEPENDENCIES_NOT_READY
        and scheduled.get("status") == "False"
    ):
        return Phase.PENDING, str(scheduled.get("reason") or reason), message
    return Phase.PENDING, waiting[1] if waiting else reason, message


def _suspended_phase(ready: Mapping[str, Any], suspended: Mapping[str, Any]) -> tuple[Phase, str, str]:
    if suspended.get("status") == "True":
        return Phase.SUSPENDED, str(ready.get("reason") or ""), str(ready.get("message") or "")
    reason = suspended.get("reason") or ready.get("reason") or ""
    return Phase.PENDING, str(reason), str(suspended.get("message") or "the pod is terminating")


def is_in_warm_pool(sandbox: Mapping[str, Any]) -> bool:
    """Return whether the sandbox still belongs to a warm pool, and to no client."""
    owner = controller_of(sandbox)
    return owner is not None and owner.get("kind") == "SandboxWarmPool"


def sandbox_claim_name(sandbox: Mapping[str, Any]) -> str | None:
    """Return the name of the SandboxClaim that owns a sandbox."""
    owner = controller_of(sandbox)
    if owner is None or owner.get("kind") != "SandboxClaim":
        return None
    return str(owner["name"]) if owner.get("apiVersion") == EXTENSIONS_API_VERSION else None


def workspace_pvc_name(sandbox: Mapping[str, Any]) -> str | None:
    """Return the name of the workspace PVC, or of the first PVC if the user replaced the workspace."""
    template = _workspace_template(sandbox)
    return None if template is None else pvc_name(template["metadata"]["name"], sandbox["metadata"]["name"])


def pvc_names(sandbox: Mapping[str, Any]) -> list[str]:
    """Return the names of all PVCs of a sandbox, the workspace first."""
    return [
        pvc_name(template["metadata"]["name"], sandbox["metadata"]["name"])
        for template in _pvc_templates(sandbox)
    ]


def _workspace_template(sandbox: Mapping[str, Any]) -> Mapping[str, Any] | None:
    return next(iter(_pvc_templates(sandbox)), None)


def _pvc_templates(sandbox: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    templates = [
        template
        for template in sandbox["spec"].get("volumeClaimTemplates") or ()
        if (template.get("metadata") or {}).get("name")
    ]
    return sorted(templates, key=lambda template: bool(template["metadata"]["name"] != VOLUME_NAME))


def _present_workspace(sandbox: Mapping[str, Any], pvc: Mapping[str, Any] | None) -> WorkspaceView | None:
    name, template = workspace_pvc_name(sandbox), _workspace_template(sandbox)
    if name is None or template is None:
        return None
    spec = template["spec"]
    size = ((spec.get("resources") or {}).get("requests") or {}).get("storage")
    if pvc is None:
        return WorkspaceView(
            claim=name,
            size=None if size is None else str(size),
            storage_class=spec.get("storageClassName"),
            phase="Missing",
        )
    status, uid = pvc.get("status") or {}, sandbox["metadata"].get("uid")
    capacity = (status.get("capacity") or {}).get("storage")
    owners = pvc["metadata"].get("ownerReferences") or ()
    return WorkspaceView(
        claim=name,
        size=None if size is None else str(size),
        storage_class=pvc["spec"].get("storageClassName"),
        phase=str(status.get("phase") or "Pending"),
        capacity=None if capacity is None else str(capacity),
        kept=not any(owner.get("uid") == uid for owner in owners),
    )


def _notes(sandbox: Mapping[str, Any], workspace: WorkspaceView | None) -> list[str]:
    notes = [
        str(condition["message"])
        for condition in (sandbox.get("status") or {}).get("conditions") or ()
        if condition.get("type") not in _PHASE_CONDITIONS
        and condition.get("status") != "True"
        and condition.get("message")
    ]
    if workspace is not None and workspace.storage_class in UNENFORCED_STORAGE_CLASSES:
        notes.append(SIZE_NOT_ENFORCED_NOTE)
    return notes


def _container_image(sandbox: Mapping[str, Any]) -> str | None:
    containers = sandbox["spec"]["podTemplate"]["spec"].get("containers") or ()
    return next((str(container["image"]) for container in containers if container.get("image")), None)


def _find_condition(obj: Mapping[str, Any], condition_type: ConditionType) -> Mapping[str, Any]:
    conditions = (obj.get("status") or {}).get("conditions") or ()
    return next((condition for condition in conditions if condition.get("type") == condition_type), {})


def _present_condition(condition: Mapping[str, Any]) -> Condition:
    return Condition(
        type=str(condition.get("type", "")),
        status=str(condition.get("status", "")),
        reason=str(condition.get("reason", "")),
        message=str(condition.get("message", "")),
        since=condition.get("lastTransitionTime"),
    )
