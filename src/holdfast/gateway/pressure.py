"""A node that is short of disk: Kubernetes starts no pod on it, and a wait for one would only say "late".

Not here: disks without a byte left, which whoever writes to them meets at once (`containers.translation`).
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from holdfast.errors import DiskFullError, HoldfastError
from holdfast.gateway.glances import ask_kubernetes

if TYPE_CHECKING:
    from holdfast.gateway.work import Work

CONDITION = "DiskPressure"


def short_of_disk(work: Work) -> DiskFullError | None:
    """What to tell where pods do not come; None where there is room, and where nobody can say."""
    try:
        said = ask_kubernetes(work, "/api/v1/nodes").body
        row = pressure_on(json.loads(said)["items"], work.node)
    except (HoldfastError, OSError, ValueError, LookupError):
        return None
    if row is None:
        return None
    return DiskFullError(
        f"the disk under the node is too full, so Kubernetes starts no pod on it ({CONDITION} since "
        f"{row.get('lastTransitionTime', 'a while')}: {row.get('message') or 'it does not say more'})",
        hint="Free some space where the container engine keeps its volumes. Kubernetes believes in the room "
        f"only after five minutes, or at once after `holdfast restart {work.name}`; then run the same "
        "command again, it goes on from here.",
    )


def pressure_on(nodes: list[dict[str, Any]], name: str) -> dict[str, Any] | None:
    """What the gateway's own node says of its disk, if that is short; an only node is the gateway's own."""
    for node in nodes:
        if len(nodes) == 1 or node["metadata"]["name"] == name:
            for row in (node.get("status") or {}).get("conditions") or ():
                if row.get("type") == CONDITION and row.get("status") == "True":
                    return dict(row)
    return None
