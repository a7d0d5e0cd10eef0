"""The common ground of steps that work on the gateway's Kubernetes.

Each call is repeated by the client of the cluster, on its own and by what its outcome allows; a policy of
the step around it would multiply that, so there is none. What such a step asks the engine is repeated by
itself (`engine_call`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from holdfast.errors import HoldfastError
from holdfast.gateway.glances import ask_kubernetes
from holdfast.gateway.remote import reopening
from holdfast.gateway.steps.base import ENGINE_CALLS, GatewayStep, indented
from holdfast.retry import Policy, exponential

if TYPE_CHECKING:
    from collections.abc import Callable

    from holdfast.engine import Context
    from holdfast.kube import Objects

T = TypeVar("T")

CLUSTER_CALLS = Policy(attempts=4, backoff=exponential(0.2, cap=10.0))
_LOG_LINES = 15


class ClusterStep(GatewayStep):
    """A step on the objects of one gateway's cluster."""

    policy = None
    attempts = ""

    @property
    def has_cluster(self) -> bool:
        """Whether there can be anything to look at yet: a preview also asks before there is."""
        return self.work.files.kubeconfig.exists()

    def engine_call(self, ctx: Context, look: Callable[[], T]) -> T:
        """A look at the container engine, repeated as other steps repeat theirs."""
        attempts = 1 if ctx.previewing else self.work.settings.attempts.engine_call
        return ctx.retry(ENGINE_CALLS.with_(attempts=attempts)).call(look)

    def objects(self, ctx: Context) -> Objects:
        """The cluster, with this step's retries told on its line and ended by Ctrl-C."""
        from holdfast.kube import Objects

        return Objects(self.work.api_client, self.calls(ctx), timeout=self.work.settings.timeouts.request)

    def calls(self, ctx: Context) -> Policy:
        """How one call to the cluster is repeated."""
        attempts = 1 if ctx.previewing else self.work.settings.attempts.apply
        return ctx.retry(CLUSTER_CALLS.with_(attempts=attempts, on_retry=reopening(self.work)))

    def log_of(self, namespace: str, pod: str) -> str:
        """The newest lines that a pod printed, those of its last life if this one is silent; for errors."""
        path = f"/api/v1/namespaces/{namespace}/pods/{pod}/log?tailLines={_LOG_LINES}"
        for query in ("&previous=true", ""):
            try:
                said = ask_kubernetes(self.work, path + query).body
            except (HoldfastError, OSError):
                continue
            if said.strip():
                return indented(said.decode(errors="replace"))
        return indented("")
