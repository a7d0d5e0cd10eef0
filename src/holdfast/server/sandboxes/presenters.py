"""Pure functions that convert sandboxes, SandboxClaims and PVCs to the models of the API."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from holdfast.api import (
    EXTENSIONS_API_VERSION,
    LAST_USED_ANNOTATION,
    SANDBOX_ID_LABEL,
    TEMPLATE_REF_ANNOTATION,
    Condition,
    ConditionType,
    HoldfastReason,
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
    bound_sandbox_name,
    controller_of,
    find_condition,
    from_request,
    idle_timeout,
    pod_name,
    pvc_name,
    recreates_failed_pods,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

_TERMINAL_PHASES = {
    SandboxReason.SANDBOX_EXPIRED: Phase.EXPIRED,
    SandboxReason.POD_SUCCEEDED: Phase.FINISHED,
    SandboxReason.POD_FAILED: Phase.FAILED,
}
_WAITING_REASONS = (HoldfastReason.PREVIOUS_OBJECT_TERMINATING,)
"""Explanations of an error that ends without an action of the user."""
_PHASE_CONDITIONS = {member.value for member in ConditionType} - {ConditionType.NETWORK_POLICY_ENFORCED.value}
"""Condition types that the phase already reflects; all others become notes."""
NO_WORKSPACE_NOTE = "the sandbox has no workspace: its files are deleted with the pod"


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
    status, annotations = sandbox.get("status") or {}, sandbox["metadata"].get("annotations") or {}
    ips = [str(ip) for ip in status.get("podIPs") or ()]
    claim = sandbox_claim_name(sandbox)
    workspace = _present_workspace(sandbox, workspace_pvc)
    return SandboxView(
        **_common_fields(sandbox, sandbox_phase(sandbox)),
        name=claim or sandbox["metadata"]["name"],
        **container_fields(sandbox),
        pod=pod_name(sandbox) if ips else None,
        pod_ip=ips[0] if ips else None,
        pod_ips=ips,
        node=status.get("nodeName"),
        workspace=workspace,
        shutdown_time=_shutdown_time(sandbox_claim) if sandbox_claim else sandbox["spec"].get("shutdownTime"),
        idle_suspend_after=idle_timeout(sandbox),
        last_used=annotations.get(LAST_USED_ANNOTATION),
        sandbox_claim=claim,
        template=annotations.get(TEMPLATE_REF_ANNOTATION),
        failed_pods="Recreate" if recreates_failed_pods(sandbox) else "Keep",
        notes=_notes(sandbox),
    )


def container_fields(obj: Mapping[str, Any]) -> dict[str, Any]:
    """Fields that the view of a sandbox or template takes from the first container with an image."""
    containers = obj["spec"]["podTemplate"]["spec"].get("containers") or ()
    container: Mapping[str, Any] = next((each for each in containers if each.get("image")), {})
    limits = (container.get("resources") or {}).get("limits") or {}
    fields: dict[str, Any] = {name: str(limits[name]) for name in ("cpu", "memory") if name in limits}
    if container:
        fields["image"] = str(container["image"])
    for name in ("command", "args"):
        if container.get(name) is not None:
            fields[name] = [from_request.unescape_expansion(part) for part in container[name]]
    return fields


def present_sandbox_claim(sandbox_claim: Mapping[str, Any]) -> SandboxView:
    """Convert a SandboxClaim that has no sandbox yet."""
    metadata = sandbox_claim["metadata"]
    ready = find_condition(sandbox_claim, ConditionType.READY)
    phase = Phase.EXPIRED if ready.get("reason") == SandboxClaimReason.CLAIM_EXPIRED else Phase.PENDING
    if metadata.get("deletionTimestamp"):
        phase = Phase.DELETING
    return SandboxView(
        **_common_fields(sandbox_claim, (phase, ready.get("reason", ""), ready.get("message", ""))),
        name=metadata["name"],
        shutdown_time=_shutdown_time(sandbox_claim),
        sandbox_claim=metadata["name"],
    )


def _common_fields(obj: Mapping[str, Any], state: tuple[Phase, str, str]) -> dict[str, Any]:
    """Fields that a view takes from a Sandbox or a SandboxClaim, given its phase, reason and message."""
    metadata, labels = obj["metadata"], dict(obj["metadata"].get("labels") or {})
    conditions = (obj.get("status") or {}).get("conditions") or ()
    return {
        **dict(zip(("phase", "reason", "message"), state, strict=True)),
        "id": labels.get(SANDBOX_ID_LABEL) or metadata.get("uid", ""),
        "conditions": [present_condition(condition) for condition in conditions],
        "labels": labels,
        "created": metadata.get("creationTimestamp"),
    }


def _shutdown_time(sandbox_claim: Mapping[str, Any]) -> str | None:
    return (sandbox_claim["spec"].get("lifecycle") or {}).get("shutdownTime")


def has_no_sandbox(sandbox_claim: Mapping[str, Any]) -> bool:
    """Return whether a SandboxClaim is not bound yet, or has lost its sandbox."""
    reason = find_condition(sandbox_claim, ConditionType.READY).get("reason")
    lost = reason in (SandboxClaimReason.CLAIM_EXPIRED, SandboxClaimReason.SANDBOX_MISSING)
    return lost or not bound_sandbox_name(sandbox_claim)


def sandbox_phase(sandbox: Mapping[str, Any]) -> tuple[Phase, str, str]:
    """Return the phase of a sandbox with its reason and message."""
    metadata, ready = sandbox["metadata"], find_condition(sandbox, ConditionType.READY)
    if metadata.get("deletionTimestamp"):
        return Phase.DELETING, str(ready.get("reason") or ""), "the sandbox is being deleted"
    if not ready:
        return Phase.PENDING, "", "the controller has not seen the sandbox yet"
    # Conditions of an older generation describe the previous spec: after a suspend, Ready may still be True.
    if ready.get("observedGeneration", 0) < metadata.get("generation", 0):
        return Phase.PENDING, "", "the controller has not seen the latest change yet"
    explained = _explanation(sandbox, ready)
    if (
        sandbox["spec"].get("operatingMode") == OperatingMode.SUSPENDED
        and ready.get("reason") not in _TERMINAL_PHASES
    ):
        return _suspended_phase(ready, find_condition(sandbox, ConditionType.SUSPENDED), explained)
    return _running_phase(ready, find_condition(sandbox, ConditionType.POD_SCHEDULED), explained)


def _running_phase(
    ready: Mapping[str, Any], scheduled: Mapping[str, Any], explained: Mapping[str, Any]
) -> tuple[Phase, str, str]:
    reason, message = str(ready.get("reason") or ""), str(ready.get("message") or "")
    why, details = str(explained.get("reason") or ""), str(explained.get("message") or "")
    if ready.get("status") == "True":
        # Ready stays True while the old pod of a resumed sandbox terminates.
        is_leaving = why == SandboxReason.POD_TERMINATING
        return (Phase.PENDING, why, details) if is_leaving else (Phase.READY, reason, message)
    if reason in _TERMINAL_PHASES:
        return _TERMINAL_PHASES[SandboxReason(reason)], reason, details or message
    if why and (reason == SandboxReason.DEPENDENCIES_NOT_READY or why in _WAITING_REASONS):
        # A failed pod that is about to be recreated is not final, so Ready does not report PodFailed.
        return Phase.FAILED if why == SandboxReason.POD_FAILED else Phase.PENDING, why, details
    if reason == SandboxReason.DEPENDENCIES_NOT_READY and scheduled.get("status") == "False":
        return Phase.PENDING, str(scheduled.get("reason") or reason), str(scheduled.get("message") or message)
    return Phase.PENDING, reason, message


def _explanation(sandbox: Mapping[str, Any], ready: Mapping[str, Any]) -> Mapping[str, Any]:
    """What holdfast's controller adds to the Ready condition of the same generation; empty if nothing.

    Another controller of the published API leaves the condition as it was.
    """
    explained = find_condition(sandbox, ConditionType.EXPLANATION)
    is_current = explained.get("observedGeneration") == ready.get("observedGeneration")
    return explained if is_current and explained.get("status") == "True" else {}


def _suspended_phase(
    ready: Mapping[str, Any], suspended: Mapping[str, Any], explained: Mapping[str, Any]
) -> tuple[Phase, str, str]:
    if suspended.get("status") == "True":
        return Phase.SUSPENDED, str(ready.get("reason") or ""), str(ready.get("message") or "")
    cause = explained or suspended
    reason = cause.get("reason") or ready.get("reason") or ""
    return Phase.PENDING, str(reason), str(cause.get("message") or "the pod is terminating")


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
    return next(iter(pvc_names(sandbox)), None)


def pvc_names(sandbox: Mapping[str, Any]) -> list[str]:
    """Return the names of all PVCs of a sandbox, the workspace first."""
    name = sandbox["metadata"]["name"]
    return [pvc_name(template["metadata"]["name"], name) for template in _pvc_templates(sandbox)]


def _pvc_templates(sandbox: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    templates = [
        template
        for template in sandbox["spec"].get("volumeClaimTemplates") or ()
        if (template.get("metadata") or {}).get("name")
    ]
    return sorted(templates, key=lambda template: bool(template["metadata"]["name"] != VOLUME_NAME))


def _present_workspace(sandbox: Mapping[str, Any], pvc: Mapping[str, Any] | None) -> WorkspaceView | None:
    name = workspace_pvc_name(sandbox)
    if name is None:
        return None
    spec = _pvc_templates(sandbox)[0]["spec"]
    size = ((spec.get("resources") or {}).get("requests") or {}).get("storage")
    storage_class = (spec if pvc is None else pvc["spec"]).get("storageClassName")
    view = WorkspaceView(
        pvc=name,
        size=None if size is None else str(size),
        storage_class=storage_class,
        phase="Missing",
        size_enforced=storage_class not in UNENFORCED_STORAGE_CLASSES,
    )
    if pvc is None:
        return view
    status, owners = pvc.get("status") or {}, pvc["metadata"].get("ownerReferences") or ()
    capacity, uid = (status.get("capacity") or {}).get("storage"), sandbox["metadata"].get("uid")
    return msgspec.structs.replace(
        view,
        phase=str(status.get("phase") or "Pending"),
        capacity=None if capacity is None else str(capacity),
        kept=not any(owner.get("uid") == uid for owner in owners),
    )


def _notes(sandbox: Mapping[str, Any]) -> list[str]:
    notes = [
        str(condition["message"])
        for condition in (sandbox.get("status") or {}).get("conditions") or ()
        if condition.get("type") not in _PHASE_CONDITIONS
        and condition.get("status") != "True"
        and condition.get("message")
    ]
    if (
        sandbox["spec"].get("operatingMode") == OperatingMode.SUSPENDED
        and workspace_pvc_name(sandbox) is None
    ):
        notes.append(NO_WORKSPACE_NOTE)
    return notes


def present_condition(condition: Mapping[str, Any]) -> Condition:
    """Convert a condition."""
    return Condition(
        type=str(condition.get("type", "")),
        status=str(condition.get("status", "")),
        reason=str(condition.get("reason", "")),
        message=str(condition.get("message", "")),
        since=condition.get("lastTransitionTime"),
    )
