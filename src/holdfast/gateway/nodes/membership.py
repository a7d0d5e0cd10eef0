"""Which nodes are members of a gateway: its server, and the workers that carry its label.

Pure. A node is judged by its name and its labels alone: readiness says nothing, for a node that went away a
moment ago still counts as ready, and one that is a member may well be down.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from holdfast.gateway.identity import node_name

if TYPE_CHECKING:
    from collections.abc import Sequence

MEMBER_LABEL = "holdfast.dev/gateway"
"""A worker carries this label with `member_value` of its gateway."""

HOSTNAME_LABEL = "kubernetes.io/hostname"


class NodeView(msgspec.Struct, frozen=True, kw_only=True):
    """A Node as far as membership goes."""

    name: str
    uid: str
    labels: dict[str, str] = {}

    @property
    def hostname(self) -> str:
        """What volumes are pinned to: the label, which need not be the name."""
        return self.labels.get(HOSTNAME_LABEL, self.name)


class Membership(msgspec.Struct, frozen=True, kw_only=True):
    """All nodes of a cluster, told apart; without a server nobody can say who is stale."""

    server: NodeView | None
    workers: tuple[NodeView, ...] = ()
    stale: tuple[NodeView, ...] = ()

    @property
    def members(self) -> tuple[NodeView, ...]:
        return (*((self.server,) if self.server is not None else ()), *self.workers)


def member_value(gateway: str) -> str:
    """The value of the label: the server's name, since not every gateway's name can be one of a label."""
    return node_name(gateway)


def membership(nodes: Sequence[NodeView], *, gateway: str, hostname: str) -> Membership:
    """Tell members from the rest.

    The server has the name that is made from the gateway's; a container from before names were made like
    that has registered under its `hostname` instead. If neither is there, nothing is stale: to remove nodes
    from a cluster whose own node is unknown could remove the only one.
    """
    by_name = {node.name: node for node in nodes}
    server = by_name.get(node_name(gateway)) or by_name.get(hostname)
    if server is None:
        return Membership(server=None)
    value = member_value(gateway)
    rest = [node for node in nodes if node.name != server.name]
    return Membership(
        server=server,
        workers=tuple(node for node in rest if node.labels.get(MEMBER_LABEL) == value),
        stale=tuple(node for node in rest if node.labels.get(MEMBER_LABEL) != value),
    )
