"""Whether a claim can ever have the room that it asks for, where its storage class does not look itself.

A class that makes plain folders gives every claim whatever it asks for; that the disk is smaller shows only
once it is full. Pure. Not here: how large the disks are (the controller asks the nodes).
"""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING, Any

from holdfast.sandbox.quantity import amount

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

UNSIZED = ("local-path",)
"""Storage classes that do not enforce sizes."""
_GIB = 2**30


def largest(nodes: Iterable[Mapping[str, Any]]) -> Decimal | None:
    """The bytes of the largest disk that any node tells of; None where none does."""
    told = [amount((node.get("status") or {}).get("capacity", {}).get("ephemeral-storage")) for node in nodes]
    return max((each for each in told if each is not None), default=None)


def is_too_large(claim: Mapping[str, Any], disk: Decimal | None) -> bool:
    """Whether a claim asks for more than any disk has."""
    asked = amount(_asked(claim))
    return disk is not None and asked is not None and asked > disk


def cannot_be_had(claim: Mapping[str, Any], disk: Decimal | None) -> str:
    """Why a claim that is there cannot have its room; nothing where its class knows, or it has it already."""
    bound = (claim.get("status") or {}).get("phase") == "Bound"
    if bound or claim["spec"].get("storageClassName") not in UNSIZED or not is_too_large(claim, disk):
        return ""
    size, room = _asked(claim), (disk or Decimal(0)) / _GIB
    return f"the claim {claim['metadata']['name']} asks for {size}, but the largest disk has {room:.0f} GiB"


def _asked(claim: Mapping[str, Any]) -> Any:
    return ((claim["spec"].get("resources") or {}).get("requests") or {}).get("storage")
