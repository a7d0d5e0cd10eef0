"""GPUs in the engine's own terms, there and back: device requests of a container.

Not here: whether the host has any; the engine alone knows, and says so at the start (translation.py).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

ALL = "all"
"""Stands for every GPU of the host, in the place of ids."""

_CAPABILITY = "gpu"
_EVERY_ONE = -1


def device_requests(gpus: Sequence[str]) -> list[dict[str, Any]]:
    """What asks an engine for these GPUs; which driver gives them is the engine's choice."""
    if not gpus:
        return []
    which = {"Count": _EVERY_ONE} if ALL in gpus else {"DeviceIDs": sorted(gpus)}
    return [{"Driver": "", **which, "Capabilities": [[_CAPABILITY]]}]


def gpus_of(requests: Iterable[Mapping[str, Any]]) -> tuple[str, ...]:
    """The GPUs that a container was made with."""
    found: set[str] = set()
    for request in requests:
        if any(_CAPABILITY in wanted for wanted in request.get("Capabilities") or ()):
            found.update(request.get("DeviceIDs") or ())
            if request.get("Count") == _EVERY_ONE:
                return (ALL,)
    return tuple(sorted(found))
