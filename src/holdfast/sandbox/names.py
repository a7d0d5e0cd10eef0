"""What the parts of a sandbox are called, as the published API has it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from holdfast.sandbox.api import NAME_HASH, POD_NAME

if TYPE_CHECKING:
    from collections.abc import Mapping

_OFFSET, _PRIME, _WORD = 0x811C9DC5, 0x01000193, 0xFFFFFFFF


def name_hash(name: str) -> str:
    """FNV-1a of a name, 32 bits, as eight hexadecimal digits."""
    value = _OFFSET
    for byte in name.encode():
        value = ((value ^ byte) * _PRIME) & _WORD
    return f"{value:08x}"


def tracking(name: str) -> dict[str, str]:
    """The label by which everything of a sandbox is found."""
    return {NAME_HASH: name_hash(name)}


def selector(name: str) -> str:
    """The same as the text of a label selector."""
    return f"{NAME_HASH}={name_hash(name)}"


def pod_name(sandbox: Mapping[str, Any]) -> str:
    """A sandbox's pod has its name, unless an annotation says otherwise."""
    metadata = sandbox["metadata"]
    return str((metadata.get("annotations") or {}).get(POD_NAME) or metadata["name"])


def claim_name(template: str, sandbox: str) -> str:
    """The claim that is made from one template of a sandbox."""
    return f"{template}-{sandbox}"
