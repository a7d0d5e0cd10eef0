"""Steps that wait for the node, and the errors and logs that explain why it is not ready.

The node reports each change of its components; only its runtime, which starts within seconds, is polled.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import msgspec

from holdfast.containers import RunningCommand, container_logs, follow_logs, is_disk_full, read_file
from holdfast.errors import (
    ContainerEngineError,
    DiskFullError,
    GatewayNotFoundError,
    HoldfastError,
    NodeConfigurationError,
    NodeStoppedError,
    UsageError,
    WaitTimeoutError,
)
from holdfast.gateway.base_steps import LOG_LINES, GatewayStep, indent_log
from holdfast.gateway.cluster import kubernetes_get
from holdfast.gateway.image_push import containerd_images
from holdfast.gateway.registry import check_recorded
from holdfast.retry import Policy, constant

if TYPE_CHECKING:
    from collections.abc import Iterator

    from holdfast.containers import ContainerView
    from holdfast.gateway.context import GatewayContext
    from holdfast.workflow import StepContext

DISK_PRESSURE = "DiskPressure"
# The exit code of a node that cannot run with its settings.
NODE_EXIT_MANUAL_ACTION = 3
# The engine does not end a command when its client disconnects, but it closes the command's stdin.
# -F, because the node rotates its logs by renaming them.
_FOLLOW_SCRIPT = 'tail -n "$1" -F "$0" & cat > /dev/null; kill $!'


class NodeProgress(msgspec.Struct, frozen=True):
    """One line of `holdfast-node wait`; the last line has no component."""

    component: str = ""
    state: str = ""
    detail: str = ""


class WaitRuntime(GatewayStep):
    """Wait until containerd answers, so that images can be pushed while Kubernetes starts."""

    name = "wait-runtime"
    title = "Runtime"
    needs = ("start-container",)
    repeat = "always"

    def run(self, ctx: StepContext) -> None:
        if not is_reported_healthy(self.gateway):
            self._wait(ctx)
        ctx.note("containerd answers")

    def _wait(self, ctx: StepContext) -> None:
        policy = Policy(
            attempts=None,
            deadline=self.gateway.settings.timeouts.node_ready,
            backoff=constant(0.1),
            retry_on=containerd_images.is_containerd_not_ready,
            stop=ctx.stop,
        )
        try:
            policy.call(containerd_images.check_containerd, self.gateway)
        except ContainerEngineError as error:
            if has_container_exited(self.gateway):
                raise explain_node_failure(self.gateway, NodeProgress()) from error
            if containerd_images.is_containerd_not_ready(error):
                progress = NodeProgress(state="timeout", detail=error.message)
                raise explain_node_failure(self.gateway, progress) from error
            raise


class _WaitStep(GatewayStep):
    """Run `holdfast-node wait` until it succeeds, the container exits, or the timeout expires."""

    repeat = "always"
    ready_note = ""
    wait_target = ""
    """What `holdfast-node wait --for` waits for."""

    def run(self, ctx: StepContext) -> None:
        timeout = f"{self.gateway.settings.timeouts.node_ready:g}s"
        argv = [*self.gateway.contract.wait_command, self.wait_target, "--timeout", timeout]
        try:
            command = RunningCommand(self.gateway.engine, self.gateway.object_name, argv)
        except ContainerEngineError as error:
            if has_container_exited(self.gateway):
                raise explain_node_failure(self.gateway, NodeProgress()) from error
            raise
        last = NodeProgress()
        # The stream ends with the command, but also when Ctrl-C closes it or when the connection is cut.
        for line in command.lines(ctx.stop):
            last = _parse_progress(line)
            if last.component:
                ctx.progress(f"{last.component} {last.state}")
        ctx.check_stop()
        code = command.exit_code()
        if code == 0:
            ctx.note(self.ready_note)
            return
        # The engine reports no exit code while a command runs: the connection failed, not the node.
        if code is None and last.state != "timeout" and not has_container_exited(self.gateway):
            raise ContainerEngineError(
                f"gateway {self.gateway.name}: connection broken before the wait for the node ended"
            )
        raise explain_node_failure(self.gateway, last)


class WaitNodeRegistered(_WaitStep):
    """Wait for API server and node: enough to repair the cluster, which DNS and storage may need."""

    name = "wait-node-registered"
    title = "Node"
    needs = ("start-container",)
    ready_note = "API and node"
    wait_target = "node"

    def run(self, ctx: StepContext) -> None:
        if is_reported_healthy(self.gateway):
            ctx.note(self.ready_note)
        else:
            super().run(ctx)


class WaitNodeReady(_WaitStep):
    """Wait until all components of the node are ready."""

    name = "wait-node-ready"
    title = "Node ready"
    needs = ("repin-volumes",)
    ready_note = "API, node, DNS and storage"
    wait_target = "ready"


def is_reported_healthy(gateway: GatewayContext) -> bool:
    """Whether the engine's last health check of the running container succeeded.

    That result may be some seconds old: use it only to skip a wait that later steps verify again.
    """
    container = gateway.container()
    return container is not None and container.state == "running" and container.health == "healthy"


def _parse_progress(line: str) -> NodeProgress:
    try:
        return msgspec.json.decode(line, type=NodeProgress)
    except msgspec.MsgspecError:
        return NodeProgress(detail=line.strip())


def has_container_exited(gateway: GatewayContext) -> bool:
    """Whether the container has exited, or the engine is about to restart it."""
    container = gateway.container()
    return container is not None and container.state in ("restarting", "exited", "dead")


def explain_node_failure(gateway: GatewayContext, last: NodeProgress) -> HoldfastError:
    """Return the error for a node that is late, has exited, or refuses to start."""
    container = gateway.container()
    log = indent_log(container_logs(gateway.engine, gateway.object_name, tail=LOG_LINES) if container else "")
    hint = f"See `holdfast logs {gateway.name}`"
    # First: a full disk also causes timeouts and exits, and an upgrade does not roll back because of it.
    if container is not None and _has_disk_full_message(gateway, container, last):
        return DiskFullError(f"gateway {gateway.name}: no space left on the engine's host:\n{log}")
    if last.state == "timeout":
        seconds = gateway.settings.timeouts.node_ready
        return disk_pressure_error(gateway) or WaitTimeoutError(
            f"gateway {gateway.name}: the node was not ready within {seconds:g} s: "
            f"{last.detail or 'no reason was reported'}\n{log}",
            hint=f"Run the same command again to continue waiting. {hint}.",
        )
    code = container.exit_code if container else 0
    if code == NODE_EXIT_MANUAL_ACTION:
        return NodeConfigurationError(
            f"gateway {gateway.name}: the node refuses to start:\n{log}", hint=f"{hint}."
        )
    return NodeStoppedError(
        f"gateway {gateway.name}: the node stopped during its start (exit code {code}):\n{log}",
        hint=f"{hint}, then run the same command again.",
    )


def _has_disk_full_message(gateway: GatewayContext, container: ContainerView, last: NodeProgress) -> bool:
    """Check the log since the last start only: the disk may have space again since older lines."""
    log = container_logs(
        gateway.engine, gateway.object_name, tail=LOG_LINES, since=container.started_at_epoch
    )
    return is_disk_full(log) or is_disk_full(last.detail)


def disk_pressure_error(gateway: GatewayContext) -> DiskFullError | None:
    """Return the error for a node under disk pressure, on which Kubernetes starts no pod.

    None if the node has no disk pressure, or if the API does not answer.
    """
    try:
        nodes = json.loads(kubernetes_get(gateway, "/api/v1/nodes").body)["items"]
        condition = find_disk_pressure(nodes, gateway.node_name)
    except (HoldfastError, OSError, ValueError, LookupError):
        return None
    if condition is None:
        return None
    since, message = condition.get("lastTransitionTime", "unknown"), condition.get("message") or "no message"
    return DiskFullError(
        f"gateway {gateway.name}: the node's disk is too full, so Kubernetes starts no pod "
        f"({DISK_PRESSURE} since {since}: {message})",
        hint="Free space where the container engine stores its volumes. Kubernetes clears the condition "
        f"after five minutes, or immediately after `holdfast restart {gateway.name}`. "
        "Then run the same command again.",
    )


def find_disk_pressure(nodes: list[dict[str, Any]], name: str) -> dict[str, Any] | None:
    """The DiskPressure condition of the gateway's node, if it is true; a single node is the gateway's."""
    for node in nodes:
        if len(nodes) == 1 or node["metadata"]["name"] == name:
            for condition in (node.get("status") or {}).get("conditions") or ():
                if condition.get("type") == DISK_PRESSURE and condition.get("status") == "True":
                    return dict(condition)
    return None


def read_node_logs(
    gateway: GatewayContext, *, component: str | None, tail: int, follow: bool
) -> Iterator[str]:
    """Read the log of the node or of one of its components; works on a stopped node too.

    Args:
        gateway: the gateway.
        component: a component of the node; None for the container itself.
        tail: number of lines from the end.
        follow: continue with new lines.

    Raises:
        GatewayNotFoundError: The gateway has no container.
        UsageError: The node has no such component.
    """
    container = gateway.container()
    if container is None:
        check_recorded(gateway.name)
        raise GatewayNotFoundError(
            f"gateway {gateway.name}: no container", hint=f"Run `holdfast up {gateway.name}`."
        )
    if component is None:
        if follow:
            return follow_logs(gateway.engine, gateway.object_name, tail=tail)
        return iter(container_logs(gateway.engine, gateway.object_name, tail=tail).splitlines())
    if component not in gateway.contract.components:
        raise UsageError(
            f"component {component}: unknown", hint=f"Use one of: {', '.join(gateway.contract.components)}."
        )
    path = f"{gateway.contract.log_directory}/{component}.log"
    if follow and container.state == "running":
        argv = ["sh", "-c", _FOLLOW_SCRIPT, path, str(tail)]
        return RunningCommand(gateway.engine, gateway.object_name, argv, stdin=True).lines()
    content = read_file(gateway.engine, gateway.object_name, path) or b""
    lines = content.decode(errors="replace").splitlines()
    return iter(lines[-tail:] if tail else [])
