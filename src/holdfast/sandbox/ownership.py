"""Whose an object is: a sandbox acts on what it owns, and takes over only what says that it may.

Ownership goes by the owner's uid. The tracking label is how objects are found and proves nothing.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Any

from holdfast.sandbox.api import ADOPTABLE, API_VERSION, NAME_HASH
from holdfast.sandbox.names import name_hash

if TYPE_CHECKING:
    from collections.abc import Mapping


class Ownership(Enum):
    """What a sandbox may do with an object of a name that it needs."""

    OURS = "ours"
    ADOPTABLE = "adoptable"
    FOREIGN = "foreign"


def ownership(found: Mapping[str, Any], sandbox: Mapping[str, Any]) -> Ownership:
    """Whether an object is the sandbox's, may become so, or is somebody else's."""
    controller = controller_of(found)
    if controller is not None:
        ours = controller.get("uid") == sandbox["metadata"]["uid"]
        return Ownership.OURS if ours else Ownership.FOREIGN
    labels = found["metadata"].get("labels") or {}
    tracked = labels.get(NAME_HASH) == name_hash(sandbox["metadata"]["name"])
    return Ownership.ADOPTABLE if tracked or labels.get(ADOPTABLE) == "true" else Ownership.FOREIGN


def controller_of(found: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """The one owner that controls an object."""
    references = found["metadata"].get("ownerReferences") or ()
    return next((reference for reference in references if reference.get("controller")), None)


def is_owned(found: Mapping[str, Any], owner: Mapping[str, Any]) -> bool:
    """Whether this very owner controls an object."""
    controller = controller_of(found)
    return controller is not None and controller.get("uid") == owner["metadata"]["uid"]


def owner_reference(owner: Mapping[str, Any]) -> dict[str, Any]:
    """What makes an object its owner's own: it goes when the owner goes."""
    metadata = owner["metadata"]
    return {
        "apiVersion": owner.get("apiVersion") or API_VERSION,
        "kind": owner.get("kind") or "Sandbox",
        "name": metadata["name"],
        "uid": metadata["uid"],
        "controller": True,
        "blockOwnerDeletion": True,
    }


def owner_words(found: Mapping[str, Any]) -> str:
    """Whose an object is, for people."""
    controller = controller_of(found)
    if controller is None:
        return "nobody, and is not marked as adoptable"
    return f"{controller.get('kind', 'another owner')} {controller.get('name', '')}".strip()
