"""Takes stale nodes out of the cluster, each with the pods that cannot end without it.

The Node object goes last: as long as it is listed, a removal that was stopped in the middle is found and
finished. Before that it is cordoned, so that no replacement is scheduled onto it while it still looks ready.

Which pods go at once, and which do not (docs/decisions/0060):
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
    """What a removal came to; `failed` says of each node that stays why it does."""

    nodes: tuple[str, ...] = ()
    pods: int = 0
    failed: dict[str, str] = {}

    def summary(self) -> str:
        """One line for the note of the step."""
        parts = []
        if self.nodes:
            with_pods = (
                f" and {self.pods} pod{'s' if self.pods > 1 else ''} bound to them" if self.pods else ""
            )
            parts.append(f"removed {len(self.nodes)}: {', '.join(self.nodes)}{with_pods}")
        parts += [f"{name} could not be removed ({why})" for name, why in self.failed.items()]
        return "; ".join(parts) or "none"


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
    failed: dict[str, str] = {}
    pods = 0
    for node in stale:
        before_each(node.name)
        try:
            pods += _remove(cluster, node)
        except (TemporaryError, PermanentError) as error:
            failed[node.name] = error.message
        else:
            removed.append(node.name)
    return Removed(nodes=tuple(removed), pods=pods, failed=failed)


def _remove(cluster: NodeCluster, node: NodeView) -> int:
    cluster.cordon(node)
    pods = [pod for pod in cluster.pods_on(node.name) if goes_at_once(pod)]
    for pod in pods:
        cluster.remove_pod_at_once(pod)
    cluster.remove_node(node)
    return len(pods)
