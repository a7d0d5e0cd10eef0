"""Is the gateway healthy: its container, its Kubernetes, and its own API, asked as a client asks.

A container that stopped ends the wait at once, with its log. There is nothing to watch behind a published
port, so the questions are repeated by policy. Not here: whether pods can run (probe.py).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from holdfast.containers.containers import container_logs
from holdfast.containers.translation import is_transient
from holdfast.errors import (
    EngineCallError,
    EngineUnreachableError,
    HoldfastError,
    HostUnreachableError,
    NodeStoppedError,
    TemporaryError,
    WaitFailedError,
    WaitTimeoutError,
)
from holdfast.gateway.glances import ask_gateway, ask_kubernetes
from holdfast.gateway.remote import reopening
from holdfast.gateway.steps.base import indented
from holdfast.gateway.steps.cluster import ClusterStep
from holdfast.gateway.workloads.api_server import NAME
from holdfast.gateway.workloads.sights import hopeless
from holdfast.kube.conditions import Sight
from holdfast.kube.reach import ApiUnreachableError
from holdfast.retry import Policy, exponential

if TYPE_CHECKING:
    from typing import Any

    from holdfast.engine import Context
    from holdfast.gateway.work import Work

_LOG_LINES = 15
_PODS_AT_ONCE = 2.0
_ENGINE = (EngineCallError, EngineUnreachableError, HostUnreachableError)


class NotHealthyYetError(TemporaryError):
    """One of the questions was not answered as it should be; asked again."""

    code = "not-healthy-yet"


class WaitHealthy(ClusterStep):
    """Only looks: until container, Kubernetes and the gateway's own API all answer well, or time is up."""

    name = "wait-healthy"
    title = "Healthy"
    repeat = "always"

    def __init__(self, work: Work) -> None:
        super().__init__(work)
        self.needs = (
            ("wait-rollout", "write-client-files") if work.settings.workloads else ("wait-api-ready",)
        )

    def run(self, ctx: Context) -> None:
        seconds = self.work.settings.timeouts.health
        waiting = Policy(
            attempts=None,
            deadline=seconds,
            backoff=exponential(0.1, cap=2.0),
            retry_on=_may_pass,
            on_retry=reopening(self.work, lambda event: ctx.progress(self._live(event.reason))),
            stop=ctx.stop,
        )
        try:
            said = waiting.call(self._ask)
        except (NotHealthyYetError, ApiUnreachableError, TimeoutError, *_ENGINE) as error:
            if isinstance(error, _ENGINE) and not is_transient(error):
                raise
            raise WaitTimeoutError(
                f"the gateway was not healthy within {seconds:g} s: {_last(error)}\n{self._node_log()}",
                hint="Run the same command again to go on waiting. "
                f"See `holdfast logs {self.work.name}` and `holdfast status {self.work.name}`.",
                cause=error,
            ) from error
        self._confirm(ctx)
        ctx.note(said)

    def _ask(self) -> str:
        """All questions once; the first that is not answered well is raised."""
        self._ask_container()
        ask_kubernetes(self.work, "/readyz")
        if not self.work.settings.workloads:
            return "node and Kubernetes"
        self._ask_gateway()
        return f"node, Kubernetes and the gateway's API on {self.work.gateway_api}"

    def _ask_container(self) -> None:
        container = self.work.container()
        if container is None or container.state != "running":
            how = (
                "is gone" if container is None else f"is {container.state} (exit code {container.exit_code})"
            )
            raise NodeStoppedError(
                f"the gateway's container {how}:\n{self._node_log()}",
                hint=f"See `holdfast logs {self.work.name}`; the same command goes on from here.",
            )
        if container.health == "unhealthy":
            raise NotHealthyYetError("the container engine finds the container unhealthy")

    def _ask_gateway(self) -> None:
        from holdfast.pki import ClientFiles

        identity = ClientFiles(self.work.files.mtls).read().bundle
        if identity is None:
            raise NotHealthyYetError("the client's files are not there")
        try:
            said = ask_gateway(self.work, identity)
        except ApiUnreachableError:
            self._look_at_pods()
            raise
        name = _name_in(said)
        if name != self.work.name:
            raise NotHealthyYetError(f"{self.work.gateway_api} is answered by gateway {name or '(no name)'}")

    def _look_at_pods(self) -> None:
        """A pod that cannot run ends the wait: the port will stay silent."""
        from holdfast.errors import DeadlineError

        trouble: list[tuple[str, str]] = []

        def look(pods: list[dict[str, Any]]) -> Sight:
            trouble[:] = [(pod["metadata"]["name"], words) for pod in pods if (words := hopeless(pod))]
            return Sight(done=True)

        namespace = self.work.settings.namespace
        try:
            self.work.cluster.wait_many(
                "Pod",
                look,
                labels=f"app.kubernetes.io/name={NAME}",
                namespace=namespace,
                deadline=_PODS_AT_ONCE,
            )
        except DeadlineError:
            return
        if trouble:
            pod, words = trouble[0]
            raise WaitFailedError(
                f"{NAME} cannot run: {words}\n{self.log_of(namespace, pod)}",
                hint=f"Look: kubectl --kubeconfig {self.work.files.kubeconfig} -n {namespace} "
                f"describe pod {pod}",
            )

    def _confirm(self, ctx: Context) -> None:
        """These client files have just worked: only now may the old ones go."""
        if not self.work.settings.workloads or ctx.previewing:
            return
        from holdfast.pki import ClientFiles

        files = ClientFiles(self.work.files.mtls)
        if files.unconfirmed:
            files.confirm()

    def _live(self, reason: str) -> str:
        """What is waited for, with the line that the node printed last."""
        return f"{reason} | {self._printed(1).strip() or 'the node printed nothing yet'}"

    def _node_log(self) -> str:
        return indented(self._printed(_LOG_LINES))

    def _printed(self, lines: int) -> str:
        """What the node printed last; an engine that does not say must not hide what it is told with."""
        try:
            if self.work.container() is None:
                return ""
            return container_logs(self.work.engine, self.work.object, tail=lines)
        except HoldfastError as error:
            return f"(the engine did not say what it printed: {error.message})"


def _may_pass(error: BaseException) -> bool:
    """By its kind first: other errors bring a log along, and any words may be in that."""
    if isinstance(error, _ENGINE):
        return is_transient(error)
    return isinstance(error, NotHealthyYetError | ApiUnreachableError)


def _name_in(body: bytes) -> str:
    try:
        return str(msgspec.json.decode(body, type=dict).get("name", ""))
    except msgspec.MsgspecError:
        return ""


def _last(error: BaseException) -> str:
    return getattr(error, "message", None) or str(error)
