"""A sandbox as clients see it: one phase out of its conditions, and what its user should know.

Pure functions from objects of the cluster to models of the API. Not here: reading those objects (cluster.py).
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from holdfast.sandbox.api import (
    EXTENSIONS_API_VERSION,
    SANDBOX_ID,
    TEMPLATE_REF,
    ClaimReason,
    Mode,
    Reason,
)
from holdfast.sandbox.api import Condition as ConditionType
from holdfast.sandbox.disk import UNSIZED
from holdfast.sandbox.lifetime import recreates
from holdfast.sandbox.names import claim_name, pod_name
from holdfast.sandbox.ownership import controller_of
from holdfast.sandbox.wire import Condition, Phase, SandboxView, WorkspaceView
from holdfast.sandbox.workspace import VOLUME

if TYPE_CHECKING:
    from collections.abc import Mapping

_WAITING = re.compile(r"container [^:]+: ([A-Z][A-Za-z]+)(?:: |$)")
_PHASES = {
    Reason.SANDBOX_EXPIRED: Phase.EXPIRED,
    Reason.POD_SUCCEEDED: Phase.FINISHED,
    Reason.POD_FAILED: Phase.FAILED,
}
_KNOWN = {member.value for member in ConditionType} - {ConditionType.NETWORK_POLICY_ENFORCED.value}
"""What the phase says already, and is no note."""
SIZE_NOTE = "the workspace's size is not enforced: it can grow as long as the node's disk has room"


def view(
    sandbox: Mapping[str, Any],
    workspace: Mapping[str, Any] | None = None,
    owner: Mapping[str, Any] | None = None,
) -> SandboxView:
    """A sandbox as it is now; `workspace` is its volume claim, `owner` the SandboxClaim that it is of."""
    metadata, status = sandbox["metadata"], sandbox.get("status") or {}
    where, reason, message = state(sandbox)
    ips = [str(each) for each in status.get("podIPs") or ()]
    claim = claim_of(sandbox)
    seen = _workspace(sandbox, workspace)
    annotations = metadata.get("annotations") or {}
    return SandboxView(
        name=claim or metadata["name"],
        id=(metadata.get("labels") or {}).get(SANDBOX_ID) or metadata.get("uid", ""),
        phase=where,
        reason=reason,
        message=message,
        image=_image(sandbox),
        pod=pod_name(sandbox) if ips else None,
        pod_ip=ips[0] if ips else None,
        pod_ips=ips,
        node=status.get("nodeName"),
        workspace=seen,
        conditions=[_condition(each) for each in status.get("conditions") or ()],
        labels=dict(metadata.get("labels") or {}),
        created=metadata.get("creationTimestamp"),
        shutdown_time=_end(owner) if owner else sandbox["spec"].get("shutdownTime"),
        claim=claim,
        template=annotations.get(TEMPLATE_REF),
        failed_pods="Recreate" if recreates(sandbox) else "Keep",
        notes=_notes(sandbox, seen),
    )


def claim_view(claim: Mapping[str, Any]) -> SandboxView:
    """A claim that has no sandbox yet: what it says of itself."""
    metadata = claim["metadata"]
    ready = _find(claim, ConditionType.READY)
    leaving = bool(metadata.get("deletionTimestamp"))
    expired = ready.get("reason") == "ClaimExpired"
    where = Phase.DELETING if leaving else Phase.EXPIRED if expired else Phase.PENDING
    return SandboxView(
        name=metadata["name"],
        id=(metadata.get("labels") or {}).get(SANDBOX_ID) or metadata.get("uid", ""),
        phase=where,
        reason=ready.get("reason", ""),
        message=ready.get("message", ""),
        conditions=[_condition(each) for each in (claim.get("status") or {}).get("conditions") or ()],
        labels=dict(metadata.get("labels") or {}),
        created=metadata.get("creationTimestamp"),
        shutdown_time=_end(claim),
        claim=metadata["name"],
    )


def _end(claim: Mapping[str, Any]) -> str | None:
    """When a claim's time is over, and that of its sandbox with it."""
    return (claim["spec"].get("lifecycle") or {}).get("shutdownTime")


def is_without_sandbox(claim: Mapping[str, Any]) -> bool:
    """Whether a claim has got no sandbox yet, or has none any more."""
    reason = _find(claim, ConditionType.READY).get("reason")
    bound = ((claim.get("status") or {}).get("sandbox") or {}).get("name")
    return not bound or reason in (ClaimReason.CLAIM_EXPIRED, ClaimReason.SANDBOX_MISSING)


def state(sandbox: Mapping[str, Any]) -> tuple[Phase, str, str]:
    """The phase of a sandbox, and why."""
    metadata, ready = sandbox["metadata"], _find(sandbox, ConditionType.READY)
    if metadata.get("deletionTimestamp"):
        return Phase.DELETING, str(ready.get("reason") or ""), "the sandbox is being deleted"
    if not ready:
        return Phase.PENDING, "", "nobody has looked at the sandbox yet"
    if ready.get("observedGeneration", 0) < metadata.get("generation", 0):
        return Phase.PENDING, "", "what was asked for last is being taken up"
    if sandbox["spec"].get("operatingMode") == Mode.SUSPENDED and ready.get("reason") not in _PHASES:
        return _suspended(ready, _find(sandbox, ConditionType.SUSPENDED))
    return _running(ready, _find(sandbox, ConditionType.POD_SCHEDULED))


def _running(ready: Mapping[str, Any], scheduled: Mapping[str, Any]) -> tuple[Phase, str, str]:
    reason, message = str(ready.get("reason") or ""), str(ready.get("message") or "")
    if ready.get("status") == "True":
        return Phase.READY, reason, message
    if reason in _PHASES:
        return _PHASES[Reason(reason)], reason, message
    # The container's own word, or the scheduler's, says more than that something is missing.
    found = _WAITING.match(message)
    if found is None and reason == Reason.DEPENDENCIES_NOT_READY and scheduled.get("status") == "False":
        return Phase.PENDING, str(scheduled.get("reason") or reason), message
    return Phase.PENDING, found[1] if found else reason, message


def _suspended(ready: Mapping[str, Any], suspended: Mapping[str, Any]) -> tuple[Phase, str, str]:
    if suspended.get("status") == "True":
        return Phase.SUSPENDED, str(ready.get("reason") or ""), str(ready.get("message") or "")
    reason = suspended.get("reason") or ready.get("reason") or ""
    return Phase.PENDING, str(reason), str(suspended.get("message") or "the pod is ending")


def is_waiting_in_a_pool(sandbox: Mapping[str, Any]) -> bool:
    """Whether nobody has claimed it yet: then it is no client's."""
    owner = controller_of(sandbox)
    return owner is not None and owner.get("kind") == "SandboxWarmPool"


def claim_of(sandbox: Mapping[str, Any]) -> str | None:
    """The SandboxClaim that a sandbox was made for."""
    owner = controller_of(sandbox)
    if owner is None or owner.get("kind") != "SandboxClaim":
        return None
    return str(owner["name"]) if owner.get("apiVersion") == EXTENSIONS_API_VERSION else None


def workspace_name(sandbox: Mapping[str, Any]) -> str | None:
    """The claim with a sandbox's data: its workspace, or the first that people brought in its place."""
    template = _template(sandbox)
    return None if template is None else claim_name(template["metadata"]["name"], sandbox["metadata"]["name"])


def claim_names(sandbox: Mapping[str, Any]) -> list[str]:
    """All claims with a sandbox's data, its workspace first."""
    return [claim_name(each["metadata"]["name"], sandbox["metadata"]["name"]) for each in _templates(sandbox)]


def _template(sandbox: Mapping[str, Any]) -> Mapping[str, Any] | None:
    return next(iter(_templates(sandbox)), None)


def _templates(sandbox: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    templates = [
        each
        for each in sandbox["spec"].get("volumeClaimTemplates") or ()
        if (each.get("metadata") or {}).get("name")
    ]
    return sorted(templates, key=lambda each: bool(each["metadata"]["name"] != VOLUME))


def _workspace(sandbox: Mapping[str, Any], found: Mapping[str, Any] | None) -> WorkspaceView | None:
    name, template = workspace_name(sandbox), _template(sandbox)
    if name is None or template is None:
        return None
    asked = template["spec"]
    size = ((asked.get("resources") or {}).get("requests") or {}).get("storage")
    if found is None:
        return WorkspaceView(
            claim=name,
            size=None if size is None else str(size),
            storage_class=asked.get("storageClassName"),
            phase="Missing",
        )
    status, uid = found.get("status") or {}, sandbox["metadata"].get("uid")
    capacity = (status.get("capacity") or {}).get("storage")
    owners = found["metadata"].get("ownerReferences") or ()
    return WorkspaceView(
        claim=name,
        size=None if size is None else str(size),
        storage_class=found["spec"].get("storageClassName"),
        phase=str(status.get("phase") or "Pending"),
        capacity=None if capacity is None else str(capacity),
        kept=not any(each.get("uid") == uid for each in owners),
    )


def _notes(sandbox: Mapping[str, Any], workspace: WorkspaceView | None) -> list[str]:
    notes = [
        str(each["message"])
        for each in (sandbox.get("status") or {}).get("conditions") or ()
        if each.get("type") not in _KNOWN and each.get("status") != "True" and each.get("message")
    ]
    if workspace is not None and workspace.storage_class in UNSIZED:
        notes.append(SIZE_NOTE)
    return notes


def _image(sandbox: Mapping[str, Any]) -> str | None:
    containers = sandbox["spec"]["podTemplate"]["spec"].get("containers") or ()
    return next((str(each["image"]) for each in containers if each.get("image")), None)


def _find(found: Mapping[str, Any], kind: ConditionType) -> Mapping[str, Any]:
    conditions = (found.get("status") or {}).get("conditions") or ()
    return next((each for each in conditions if each.get("type") == kind), {})


def _condition(each: Mapping[str, Any]) -> Condition:
    return Condition(
        type=str(each.get("type", "")),
        status=str(each.get("status", "")),
        reason=str(each.get("reason", "")),
        message=str(each.get("message", "")),
        since=each.get("lastTransitionTime"),
    )
