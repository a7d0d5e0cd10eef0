"""Takes stale nodes out of the cluster, each with the pods that cannot end without it.

The Node object goes first: while it is listed, replacements may be scheduled onto it, for a node that is gone
still looks ready for most of a minute, and to cordon it does not keep pods away that tolerate everything. If
the removal is stopped between the two, the cluster's pod garbage collector ends the pods in its own time.

Which pods go at once, and which do not (docs/decisions/0065):
- Terminating ones: they wait for a kubelet that will never confirm.
- Those of a ReplicaSet or StatefulSet: they are made again from a template, and the cluster's DNS and storage
  are among them. The pod garbage collector would do the same, most of a minute later.
- All others are left to their owners and to the garbage collector: nobody here knows how to make them again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from holdfast.errors import PermanentError, TemporaryError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from holdfast.gateway.nodes.cluster import NodeCluster
    from holdfast.gateway.nodes.membership import NodeView

MADE_AGAIN = frozenset({"ReplicaSet", "StatefulSet"})


class Removed(msgspec.Struct, frozen=True, kw_only=True):
    """What a removal came to; `failed` says what could not be done, and why."""

    nodes: tuple[str, ...] = ()
    pods: int = 0
    failed: tuple[str, ...] = ()

    def summary(self) -> str:
        """One line for the note of the step."""
        pods = f", with {self.pods} of their pods" if self.pods else ""
        removed = (f"removed {len(self.nodes)}: {', '.join(self.nodes)}{pods}",) if self.nodes else ()
        return "; ".join((*removed, *self.failed)) or "none was left to remove"


def goes_at_once(pod: dict[str, Any]) -> bool:
    """Whether a pod on a removed node is removed with it."""
    metadata = pod["metadata"]
    if metadata.get("deletionTimestamp"):
        return True
    owners = metadata.get("ownerReferences") or ()
    return any(owner.get("controller") and owner.get("kind") in MADE_AGAIN for owner in owners)


def remove_nodes(
    cluster: NodeCluster, stale: Sequence[NodeView], before_each: Callable[[str], None] = lambda _: None
) -> Removed:
    """Remove each of these nodes; one that cannot be removed does not keep the others."""
    removed: list[str] = []
    failed: list[str] = []
    pods = 0
    for node in stale:
        before_each(node.name)
        try:
            if not cluster.remove_node(node):
                continue
        except (TemporaryError, PermanentError) as error:
            failed.append(f"{node.name} could not be removed ({error.message})")
            continue
        removed.append(node.name)
        try:
            pods += _remove_pods(cluster, node.name)
        except (TemporaryError, PermanentError) as error:
            failed.append(f"the pods of {node.name} are left to the cluster ({error.message})")
    return Removed(nodes=tuple(removed), pods=pods, failed=tuple(failed))


def _remove_pods(cluster: NodeCluster, node: str) -> int:
    pods = [pod for pod in cluster.pods_on(node) if goes_at_once(pod)]
    for pod in pods:
        cluster.remove_pod_at_once(pod)
    return len(pods)
