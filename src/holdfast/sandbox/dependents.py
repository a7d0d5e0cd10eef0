"""PVCs and Service of a sandbox: what to create, adopt, repair or delete, and what is in the way."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from holdfast.api import ADOPTABLE_LABEL, GROUP, NAME_HASH_LABEL
from holdfast.kube import parse_quantity
from holdfast.sandbox import manifests
from holdfast.sandbox.actions import Action, Adopt, Create, Delete, Patch
from holdfast.sandbox.explanation import explain_waiting
from holdfast.sandbox.manifests import is_controlled_by
from holdfast.sandbox.status import ConditionUpdate, is_being_deleted

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from decimal import Decimal

UNENFORCED_STORAGE_CLASSES = ("local-path",)
"""Storage classes that create plain directories and do not limit their size."""
_GIB = 2**30


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """What to do about one kind of dependent.

    Attributes:
        actions: writes.
        error: why it cannot be as requested, in the words of the published API; empty if it can.
        explanation: what the sandbox waits for.
        blocks_pod: whether the pod must not be created yet.
    """

    actions: tuple[Action, ...] = ()
    error: str = ""
    explanation: ConditionUpdate | None = None
    blocks_pod: bool = False


def reconcile_pvcs(
    sandbox: dict[str, Any], pvcs: Mapping[str, dict[str, Any]], largest_disk: Decimal | None
) -> Outcome:
    """Create or adopt the PVCs, up to the first that cannot be used.

    A pod that mounts it would use data of another owner, or keep a PVC alive that is being deleted.
    """
    actions: list[Action] = []
    for manifest in manifests.pvc_manifests(sandbox):
        pvc = pvcs.get(manifest["metadata"]["name"])
        if pvc is None:
            actions.append(Create(manifest=manifest))
            if _exceeds_disk(manifest, largest_disk):
                # Whether this fails depends on the storage class, which is known once the PVC exists. A pod
                # would bind the PVC before that.
                return Outcome(actions=tuple(actions), blocks_pod=True)
            continue
        taken = take_ownership("PVC", pvc, sandbox)
        actions += (*taken.actions, *_tracking_correction(pvc, sandbox))
        error = taken.error or capacity_error(pvc, largest_disk)
        if error or taken.blocks_pod:
            return msgspec.structs.replace(taken, actions=tuple(actions), error=error, blocks_pod=True)
    return Outcome(actions=tuple(actions))


def _tracking_correction(pvc: dict[str, Any], sandbox: dict[str, Any]) -> tuple[Action, ...]:
    """Label an owned PVC: the published controller adopts without the label by which PVCs are watched."""
    labels = manifests.tracking_labels(sandbox["metadata"]["name"])
    if not is_controlled_by(pvc, sandbox) or labels.items() <= (pvc["metadata"].get("labels") or {}).items():
        return ()
    return (Patch.of(pvc, {"metadata": {"labels": labels}}),)


def reconcile_service(sandbox: dict[str, Any], service: dict[str, Any] | None) -> Outcome:
    """Create, adopt, repair or delete the Service. If the spec does not mention it, it stays as it is."""
    requested = sandbox["spec"].get("service")
    if service is None:
        created = (Create(manifest=manifests.service_manifest(sandbox)),) if requested else ()
        return Outcome(actions=created)
    is_ours = is_controlled_by(service, sandbox)
    if requested is False:
        return Outcome(actions=(Delete.of(service),) if is_ours else ())
    if is_ours:
        patch = manifests.service_patch(service, sandbox, with_ports=bool(requested))
        return Outcome(actions=(Patch.of(service, patch),) if patch else ())
    if not requested and manifests.controller_of(service) is None:
        return Outcome()
    return _take_service(sandbox, service)


def _take_service(sandbox: dict[str, Any], service: dict[str, Any]) -> Outcome:
    taken = take_ownership("service", service, sandbox)
    address = service["spec"].get("clusterIP")
    adoption = next((action for action in taken.actions if isinstance(action, Adopt)), None)
    if adoption is None:
        return taken
    if address not in (None, "", "None"):
        name = service["metadata"]["name"]
        message = (
            f'cannot adopt service "{name}": ClusterIP is "{address}" (expected "None", field is immutable)'
        )
        return Outcome(error=message)
    spec = manifests.service_patch(service, sandbox, with_ports=True).get("spec") or {}
    patch = {**adoption.patch, **({"spec": spec} if spec else {})}
    return Outcome(actions=(msgspec.structs.replace(adoption, patch=patch),))


def take_ownership(kind: str, obj: dict[str, Any], sandbox: dict[str, Any]) -> Outcome:
    """Adopt an existing object with a name that the sandbox needs, or report why that is not allowed.

    Args:
        kind: the word for the object in messages: `pod`, `PVC` or `service`.
        obj: the object.
        sandbox: the sandbox.
    """
    ownership = manifests.resolve_ownership(obj, sandbox)
    if ownership is manifests.Ownership.OWNED:
        return Outcome()
    waits = explain_waiting(kind, obj) if is_leftover(obj, sandbox) else None
    if ownership is manifests.Ownership.FOREIGN:
        return Outcome(error=_foreign_error(kind, obj, sandbox), explanation=waits, blocks_pod=True)
    if waits is not None:
        return Outcome(explanation=waits, blocks_pod=True)
    return Outcome(actions=(Adopt.of(obj, sandbox),))


def is_leftover(obj: dict[str, Any], sandbox: dict[str, Any]) -> bool:
    """Whether an object is about to disappear: it is being deleted, or belongs to a previous sandbox.

    Names are unique, so a Sandbox with this name and another UID is gone, and the garbage collector deletes
    its objects.
    """
    owner = manifests.controller_of(obj) or {}
    same_name = (owner.get("kind"), owner.get("name")) == ("Sandbox", sandbox["metadata"]["name"])
    return is_being_deleted(obj) or (same_name and owner.get("apiVersion", "").startswith(f"{GROUP}/"))


def _foreign_error(kind: str, obj: dict[str, Any], sandbox: dict[str, Any]) -> str:
    owner, name = manifests.controller_of(obj), obj["metadata"]["name"]
    if owner is None:
        return (
            f'cannot adopt unowned {kind} "{name}": missing required pool authorization label '
            f'("{ADOPTABLE_LABEL}") or sandbox tracking label ("{NAME_HASH_LABEL}")'
        )
    return (
        f'{kind} "{name}" is owned by {owner.get("kind")}/{owner.get("name")} (UID: {owner.get("uid")}), '
        f'not by sandbox "{sandbox["metadata"]["name"]}"'
    )


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
