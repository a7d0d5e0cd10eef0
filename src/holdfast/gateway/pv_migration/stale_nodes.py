"""Decide which nodes belong to a gateway, and remove the others together with the pods stuck on them.

A node is a member by its name or label alone. Readiness is not considered: a node that disappeared a moment
ago still counts as ready, and a member may be down. Without the removal, a gateway whose node once had
another name would wait forever for pods that are bound to the old node, such as cluster DNS
(docs/decisions/0065-stale-nodes.md).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from holdfast.errors import PermanentError, TemporaryError
from holdfast.gateway.base_steps import ClusterStep, progress_reporter
from holdfast.gateway.pv_migration.find_stranded import HOSTNAME_LABEL
from holdfast.gateway.spec import node_name
from holdfast.workflow import ProbeResult, absent, done, partial

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from holdfast.kube import Objects
    from holdfast.workflow import StepContext

# Workers have this label with the node name of their gateway: not every gateway name is a valid label.
MEMBER_LABEL = "holdfast.dev/gateway"
RECREATING_OWNER_KINDS = frozenset({"ReplicaSet", "StatefulSet"})
NO_CLUSTER = "the cluster does not exist yet"


class NodeView(msgspec.Struct, frozen=True, kw_only=True):
    """Name, uid and labels of a Node."""

    name: str
    uid: str
    labels: dict[str, str] = {}

    @classmethod
    def from_object(cls, node: dict[str, Any]) -> NodeView:
        metadata = node["metadata"]
        return cls(name=metadata["name"], uid=metadata["uid"], labels=metadata.get("labels") or {})

    @property
    def hostname(self) -> str:
        """The hostname label, which volumes are pinned to; it may differ from the name."""
        return self.labels.get(HOSTNAME_LABEL, self.name)


class Membership(msgspec.Struct, frozen=True, kw_only=True):
    """The nodes of a cluster by role; without a control plane node, no node is classified."""

    control_plane: NodeView | None
    workers: tuple[NodeView, ...] = ()
    stale: tuple[NodeView, ...] = ()

    @property
    def members(self) -> tuple[NodeView, ...]:
        return (*((self.control_plane,) if self.control_plane is not None else ()), *self.workers)

    @property
    def node_names(self) -> frozenset[str]:
        """Names and hostnames of all nodes, stale ones included."""
        return frozenset(name for node in (*self.members, *self.stale) for name in (node.name, node.hostname))


def classify_nodes(nodes: Sequence[NodeView], *, gateway: str, hostname: str) -> Membership:
    """Separate the members of a gateway from stale nodes.

    The control plane node has the name derived from the gateway's name. Containers of earlier versions
    registered under their hostname instead. If neither is listed, no node is stale: removing nodes from a
    cluster whose own node is unknown could remove the only one.

    Args:
        nodes: All nodes of the cluster.
        gateway: The gateway's name.
        hostname: The hostname of the gateway's container; empty if there is none.
    """
    own_name, by_name = node_name(gateway), {node.name: node for node in nodes}
    control_plane = by_name.get(own_name) or by_name.get(hostname)
    if control_plane is None:
        return Membership(control_plane=None)
    others = [node for node in nodes if node.name != control_plane.name]
    return Membership(
        control_plane=control_plane,
        workers=tuple(node for node in others if node.labels.get(MEMBER_LABEL) == own_name),
        stale=tuple(node for node in others if node.labels.get(MEMBER_LABEL) != own_name),
    )


class NodeRemovalResult(msgspec.Struct, frozen=True, kw_only=True):
    """Removed nodes, the number of their deleted pods, and descriptions of failures."""

    nodes: tuple[str, ...] = ()
    pods: int = 0
    failed: tuple[str, ...] = ()

    def summary(self) -> str:
        pods = f", with {self.pods} of their pods" if self.pods else ""
        removed = (f"removed {len(self.nodes)}: {', '.join(self.nodes)}{pods}",) if self.nodes else ()
        return "; ".join((*removed, *self.failed)) or "no node had to be removed"


def is_safe_to_force_delete(pod: dict[str, Any]) -> bool:
    """Whether a pod of a removed node is deleted immediately.

    Terminating pods wait for a kubelet that cannot confirm their end. Pods of a ReplicaSet or StatefulSet are
    recreated from a template, and cluster DNS and storage are among them. All others are left to their owners
    and to the pod garbage collector.
    """
    if pod["metadata"].get("deletionTimestamp"):
        return True
    owners = pod["metadata"].get("ownerReferences") or ()
    return any(owner.get("controller") and owner.get("kind") in RECREATING_OWNER_KINDS for owner in owners)


def remove_nodes(
    cluster: Objects, stale: Sequence[NodeView], before_each: Callable[[str], None] = lambda _: None
) -> NodeRemovalResult:
    """Delete nodes and their stuck pods; a node that cannot be deleted does not affect the others.

    The Node object is deleted first: while it exists, pods may be scheduled on it, and a cordon does not
    stop pods that tolerate every taint. After a crash between the two, the pod garbage collector deletes the
    pods.

    Args:
        cluster: The cluster to change.
        stale: The nodes to delete.
        before_each: Called with each node's name before it is deleted; may raise to stop.
    """
    removed: list[str] = []
    failed: list[str] = []
    pods = 0
    for node in stale:
        # Outside the `try`: a lost lock is a TemporaryError and must end the loop.
        before_each(node.name)
        try:
            # Under this uid only: the node may have been registered again.
            if cluster.delete("Node", node.name, uid=node.uid).effect != "deleted":
                continue
        except (TemporaryError, PermanentError) as error:
            failed.append(f"{node.name} could not be removed ({error.message})")
            continue
        removed.append(node.name)
        try:
            for pod in cluster.list("Pod").items:
                if pod["spec"].get("nodeName") == node.name and is_safe_to_force_delete(pod):
                    name, namespace, uid = (pod["metadata"][key] for key in ("name", "namespace", "uid"))
                    # Without a grace period: the kubelet that would confirm the deletion is gone.
                    cluster.delete("Pod", name, namespace=namespace, uid=uid, grace_seconds=0)
                    pods += 1
        except (TemporaryError, PermanentError) as error:
            failed.append(f"pods of {node.name} are left to the garbage collector ({error.message})")
    return NodeRemovalResult(nodes=tuple(removed), pods=pods, failed=tuple(failed))


class NodesStep(ClusterStep):
    """A step on the cluster's nodes and volumes."""

    attempts_setting = "stale_nodes"

    def membership(self, ctx: StepContext) -> Membership:
        nodes = [NodeView.from_object(node) for node in self.objects(ctx).list("Node").items]
        return classify_nodes(nodes, gateway=self.gateway.name, hostname=self._hostname())

    def node_not_listed_text(self) -> str:
        """Describe that the gateway's node is listed under neither of its possible names."""
        hostname = self._hostname()
        if hostname and hostname != self.gateway.node_name:
            return f"neither {self.gateway.node_name} nor {hostname} is listed"
        return f"{self.gateway.node_name} is not listed"

    def _hostname(self) -> str:
        container = self.gateway.container()
        return container.hostname if container is not None else ""


class RemoveStaleNodes(NodesStep):
    """Remove nodes that are not members, and the pods stuck on them.

    Never fails the run: a stale node delays some pods, but does not make the gateway unusable. The note says
    why a node was not removed.
    """

    name = "remove-stale-nodes"
    title = "Stale nodes"
    needs = ("wait-api-ready",)
    touches = ("nodes that are not members, and pods stuck on them",)

    def probe(self, ctx: StepContext) -> ProbeResult:
        if not self.has_cluster:
            return absent(NO_CLUSTER)
        try:
            nodes = self.membership(ctx)
        except (TemporaryError, PermanentError) as error:
            return partial(f"the nodes cannot be listed: {error.message}")
        if nodes.control_plane is None:
            return done(f"no node is removed: {self.node_not_listed_text()}")
        if nodes.stale:
            return partial(f"not members: {', '.join(node.name for node in nodes.stale)}")
        count = len(nodes.workers)
        workers = f" and {count} worker{'s' if count > 1 else ''}" if count else ""
        return done(f"{nodes.control_plane.name}{workers}, no stale nodes")

    def run(self, ctx: StepContext) -> None:
        try:
            stale = self.membership(ctx).stale
        except (TemporaryError, PermanentError) as error:
            ctx.note(f"no node could be removed; the next `up` retries: {error.message}")
            return
        report = progress_reporter(ctx)
        result = remove_nodes(self.objects(ctx), stale, lambda name: report(f"removing {name}", None))
        ctx.note(result.summary())
