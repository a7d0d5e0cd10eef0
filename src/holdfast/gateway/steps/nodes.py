"""Nodes that are no members any more leave the cluster; volumes that were pinned to them come along.

Without this a gateway whose node once had another name would wait for ever for pods that are bound to a node
that nobody runs, its DNS among them. Not here: who is a member, and how a volume is pinned anew (nodes/).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.containers.commands import run_in
from holdfast.engine import Verdict, absent, done, partial
from holdfast.errors import EngineCallError, PermanentError, TemporaryError
from holdfast.gateway.nodes.membership import Membership, membership
from holdfast.gateway.remote import reopening
from holdfast.gateway.steps.base import GatewayStep
from holdfast.retry import Policy, exponential

if TYPE_CHECKING:
    from collections.abc import Sequence

    from holdfast.engine import Context
    from holdfast.gateway.nodes.cluster import NodeCluster
    from holdfast.gateway.nodes.survey import Survey

_CALLS = Policy(attempts=4, backoff=exponential(0.2, cap=5))
_NO_CLUSTER = "there is no cluster yet"
LOCAL_PATH = "local-path"
"""The folder below a node's state in which its storage provisioner makes volumes."""


class NodeStep(GatewayStep):
    """A step on the nodes of the cluster. Each request is tried `attempts.stale_nodes` times."""

    attempts = "stale_nodes"
    policy = None

    @property
    def has_cluster(self) -> bool:
        """Whether there can be anything to look at yet: a preview also asks before there is."""
        return self.work.files.kubeconfig.exists()

    def cluster(self, ctx: Context) -> NodeCluster:
        """The cluster, with this step's retries told on its line and ended by Ctrl-C."""
        from holdfast.gateway.nodes.cluster import NodeCluster

        attempts = 1 if ctx.previewing else self.work.settings.attempts.stale_nodes
        calls = _CALLS.with_(attempts=attempts, on_retry=reopening(self.work))
        seconds = self.work.settings.timeouts.request
        return NodeCluster(self.work.api_client, ctx.retry(calls), seconds)

    def nodes(self, ctx: Context) -> Membership:
        """All nodes, told apart."""
        nodes = self.cluster(ctx).nodes()
        return membership(nodes, gateway=self.work.name, hostname=self._hostname())

    def _hostname(self) -> str:
        container = self.work.container()
        return container.hostname if container is not None else ""

    def not_listed(self) -> str:
        """In words: the gateway's own node is not there under any name that it may have."""
        hostname = self._hostname()
        if hostname and hostname != self.work.node:
            return f"neither {self.work.node} nor {hostname} is listed"
        return f"{self.work.node} is not listed"


class RemoveStaleNodes(NodeStep):
    """Nodes that are not members go, with the pods stuck on them; the result is their count.

    Never fatal: a node that stays is untidy, and its pods may be missing for a while, but a gateway that
    does not come up helps nobody. Why it stays is in the note.
    """

    name = "remove-stale-nodes"
    title = "Stale nodes"
    needs = ("wait-api-ready",)
    touches = ("nodes that are no members, and pods stuck on them",)

    def probe(self, ctx: Context) -> Verdict:
        if not self.has_cluster:
            return absent(_NO_CLUSTER)
        try:
            found = self.nodes(ctx)
        except (TemporaryError, PermanentError) as error:
            return partial(f"the nodes cannot be listed: {error.message}")
        if found.server is None:
            return done(f"none is removed: {self.not_listed()}", result=0)
        if found.stale:
            return partial(f"no members: {', '.join(node.name for node in found.stale)}")
        others = (
            f" and {len(found.workers)} worker{'s' if len(found.workers) > 1 else ''}"
            if found.workers
            else ""
        )
        return done(f"{found.server.name}{others}, and no other", result=0)

    def run(self, ctx: Context) -> int:
        from holdfast.gateway.nodes.removal import remove_nodes

        def before_each(name: str) -> None:
            ctx.check_lock()
            ctx.check_stop()
            ctx.progress(f"removing {name}")

        try:
            stale = self.nodes(ctx).stale
        except (TemporaryError, PermanentError) as error:
            ctx.note(f"none could be removed, the next `up` tries again: {error.message}")
            return 0
        removed = remove_nodes(self.cluster(ctx), stale, before_each)
        ctx.note(removed.summary())
        return len(removed.nodes)


class RepinVolumes(NodeStep):
    """Volumes on our disk that are pinned to nodes that are gone are pinned to the gateway's node.

    No claim and no file is ever touched. What cannot be pinned anew is named and stays as it is. Unlike the
    step before, this one fails when it was stopped by a fault in the middle: a claim would be without its
    volume, and the same command goes on from there.
    """

    name = "repin-volumes"
    title = "Volumes"
    needs = ("remove-stale-nodes",)
    touches = ("volumes that are pinned to nodes that are gone; their files stay as they are",)

    def probe(self, ctx: Context) -> Verdict:
        if not self.has_cluster:
            return absent(_NO_CLUSTER)
        found, server = self._look(ctx)
        if server is None:
            return done(f"none is touched: {self.not_listed()}")
        if found.work or found.unused:
            return partial(f"to be pinned to {server}: {', '.join(found.work or found.unused)}")
        return done(found.left_words() or "all where they belong")

    def run(self, ctx: Context) -> dict[str, object]:
        from holdfast.gateway.nodes.repin import Repinner

        def told(name: str) -> None:
            ctx.check_lock()
            ctx.check_stop()
            ctx.progress(f"pinning {name} to {server}")

        found, server = self._look(ctx)
        if server is None:
            return {}
        repinned = Repinner(self.cluster(ctx), server, told, seconds=self.work.settings.timeouts.objects).run(
            found
        )
        ctx.note(repinned.summary())
        return {"repinned": list(repinned.volumes), "left": repinned.left}

    def _look(self, ctx: Context) -> tuple[Survey, str | None]:
        """What there is to do, and the hostname to pin to; none while the gateway's node is not known."""
        from holdfast.gateway.nodes.survey import Survey, survey

        cluster = self.cluster(ctx)
        nodes = self.nodes(ctx)
        if nodes.server is None:
            return Survey(), None
        hosts = {name for node in (*nodes.members, *nodes.stale) for name in (node.name, node.hostname)}
        folder = f"{self.work.profile.state_path}/{LOCAL_PATH}"
        return survey(cluster, hosts, folder, self._present), nodes.server.hostname

    def _present(self, paths: Sequence[str]) -> list[str]:
        """Which of these directories the node has."""
        script = 'for path; do if test -d "$path"; then echo yes; else echo no; fi; done'
        ended = run_in(self.work.engine, self.work.object, ["sh", "-c", script, "sh", *paths])
        said = ended.output.split()
        if ended.exit_code != 0 or len(said) != len(paths):
            raise EngineCallError(f"looking for volumes in {self.work.object}: {ended.output.strip()}")
        return [path for path, there in zip(paths, said, strict=True) if there == "yes"]
