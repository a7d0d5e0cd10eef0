"""Names, tracking labels and owners of the objects of a sandbox, as the published API defines them.

The UID of the controller reference decides who owns an object. Tracking labels only find candidates.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Any

from holdfast.api import ADOPTABLE_LABEL, API_VERSION, NAME_HASH_LABEL, POD_NAME_ANNOTATION

if TYPE_CHECKING:
    from collections.abc import Mapping

_FNV_OFFSET, _FNV_PRIME, _MASK = 0x811C9DC5, 0x01000193, 0xFFFFFFFF


def name_hash(name: str) -> str:
    """32-bit FNV-1a hash of a name, as eight hexadecimal digits."""
    value = _FNV_OFFSET
    for byte in name.encode():
        value = ((value ^ byte) * _FNV_PRIME) & _MASK
    return f"{value:08x}"


def tracking_labels(name: str) -> dict[str, str]:
    """Labels on the pod, PVCs and Service of a sandbox."""
    return {NAME_HASH_LABEL: name_hash(name)}


def tracking_selector(name: str) -> str:
    """Label selector for the objects of a sandbox."""
    return f"{NAME_HASH_LABEL}={name_hash(name)}"


def pod_name(sandbox: Mapping[str, Any]) -> str:
    """Name of a sandbox's pod: the sandbox's name, unless an annotation overrides it."""
    metadata = sandbox["metadata"]
    return str((metadata.get("annotations") or {}).get(POD_NAME_ANNOTATION) or metadata["name"])


def pvc_name(template: str, sandbox: str) -> str:
    """Name of the PVC created from one volume claim template of a sandbox."""
    return f"{template}-{sandbox}"


class Ownership(Enum):
    """Relation between a sandbox and an existing object whose name the sandbox needs."""

    OWNED = "owned"
    ADOPTABLE = "adoptable"
    FOREIGN = "foreign"


def resolve_ownership(obj: Mapping[str, Any], sandbox: Mapping[str, Any]) -> Ownership:
    """Determine whether a sandbox owns an object, may adopt it, or must leave it alone."""
    controller = controller_of(obj)
    if controller is not None:
        return Ownership.OWNED if is_controlled_by(obj, sandbox) else Ownership.FOREIGN
    labels = obj["metadata"].get("labels") or {}
    tracked = labels.get(NAME_HASH_LABEL) == name_hash(sandbox["metadata"]["name"])
    return Ownership.ADOPTABLE if tracked or labels.get(ADOPTABLE_LABEL) == "true" else Ownership.FOREIGN


def controller_of(obj: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """The owner reference of an object's controller, if it has one."""
    references = obj["metadata"].get("ownerReferences") or ()
    return next((reference for reference in references if reference.get("controller")), None)


def is_controlled_by(obj: Mapping[str, Any], owner: Mapping[str, Any]) -> bool:
    """Whether `owner` is the controller of an object."""
    controller = controller_of(obj)
    return controller is not None and controller.get("uid") == owner["metadata"]["uid"]


def owner_reference(owner: Mapping[str, Any]) -> dict[str, Any]:
    """Controller reference to `owner`; the garbage collector deletes the object with its owner."""
    metadata = owner["metadata"]
    return {
        "apiVersion": owner.get("apiVersion") or API_VERSION,
        "kind": owner.get("kind") or "Sandbox",
        "name": metadata["name"],
        "uid": metadata["uid"],
        "controller": True,
        "blockOwnerDeletion": True,
    }


def describe_owner(obj: Mapping[str, Any]) -> str:
    """Describe an object's owner for a condition message."""
    controller = controller_of(obj)
    if controller is None:
        return f"it has no owner and no label {ADOPTABLE_LABEL}=true"
    return f"its owner is {controller.get('kind', 'unknown')} {controller.get('name', '')}".strip()
