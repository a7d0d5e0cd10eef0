"""Steps that check the ports, start the node's container and set its restart policy.

A taken port is reported before anything is changed. A free port is chosen when the container is created and
bound when it starts, so two commands may choose the same one. The second to start chooses again, as long as
no client can rely on its first choice.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from holdfast.containers import (
    is_transient,
    port_owner,
    remove_container,
    set_restart_policy,
    start_container,
    unpause_container,
)
from holdfast.errors import ContainerEngineError, InvalidSettingError, PortInUseError
from holdfast.gateway.base_steps import GatewayStep
from holdfast.gateway.node.container import (
    RESTART_ALWAYS,
    RESTART_NEVER,
    create_node_container,
    image_for_new_container,
)
from holdfast.retry import Policy, exponential
from holdfast.workflow import ProbeResult, absent, done, partial

if TYPE_CHECKING:
    from holdfast.containers import ContainerView
    from holdfast.gateway.context import GatewayContext
    from holdfast.gateway.spec import GatewaySpec
    from holdfast.workflow import StepContext

_PORT_TAKEN_MESSAGES = ("port is already allocated", "address already in use")
_MAX_PORT_CHANGES = 20


class CheckPorts(GatewayStep):
    """Check that the host can publish the ports of the gateway, before anything is stopped or removed."""

    name = "check-ports"
    title = "Ports"
    needs = ("check-engine",)
    repeat = "always"

    def run(self, ctx: StepContext) -> None:
        gateway, spec, container = self.gateway, self.gateway.spec, self.gateway.container()
        # The running container itself listens on its ports.
        published = container.ports.values() if container is not None and container.is_running else ()
        known = {gateway.metadata.listen} if gateway.metadata is not None else set()
        is_new_address = spec.listen not in known.union(address for address, _ in published)
        if is_new_address and gateway.host.lacks_address(spec.listen):
            raise InvalidSettingError(
                f"listen: {spec.listen} is not an address of this machine; nothing was changed",
                hint="Pass an address of this machine with --listen, or 0.0.0.0 for all of them.",
            )
        if spec.port == spec.gateway_port:
            raise PortInUseError(
                f"port {spec.port}: the gateway's own API has this port too; nothing was changed",
                hint="Choose another port: --port N, or the setting gateway_port.",
            )
        own = {port for _, port in published}
        for key, port in _ports_by_setting(spec).items():
            is_checked = port not in own and not _may_choose_port(gateway, container, key)
            if is_checked and gateway.host.is_port_taken(port, spec.listen):
                raise _port_taken_error(gateway, key, port, "; nothing was changed")
        ctx.note(f"{spec.port} and {spec.gateway_port} on {spec.listen}")


def _port_taken_error(
    gateway: GatewayContext, key: str, port: int, consequence: str = "", *, cause: Exception | None = None
) -> PortInUseError:
    # `start` and `restart` have no option for ports.
    hint = (
        f"Stop that program, or run `holdfast up {gateway.name} --port auto`."
        if key == "port"
        else f"Stop that program, or run `HOLDFAST_GATEWAY_PORT=auto holdfast up {gateway.name}`."
    )
    owner = _port_owner(gateway, port)
    return PortInUseError(f"port {port}: already in use by {owner}{consequence}", hint=hint, cause=cause)


def _port_owner(gateway: GatewayContext, port: int) -> str:
    return port_owner(gateway.engine, port) if gateway.engine.is_local else "another program"


def _may_choose_port(gateway: GatewayContext, container: ContainerView | None, key: str) -> bool:
    """Whether a port is automatic, and either still unknown to clients or explicitly `auto`."""
    is_unknown = gateway.metadata is None and (container is None or container.never_started)
    return getattr(gateway.settings, key) == "auto" and (is_unknown or gateway.resolved.is_explicit(key))


def _ports_by_setting(spec: GatewaySpec) -> dict[str, int]:
    return {"port": spec.port, "gateway_port": spec.gateway_port}


class _RestartPolicyStep(GatewayStep):
    """Set the engine's restart policy of the container."""

    title = "Restart policy"
    restart_policy = RESTART_ALWAYS
    effect, opposite = "the engine restarts it", "the engine does not restart it"

    def probe(self, _ctx: StepContext) -> ProbeResult:
        container = self.gateway.container()
        if container is not None and container.restart_policy == self.restart_policy:
            return done(self.effect)
        return absent(self.opposite)

    def run(self, ctx: StepContext) -> None:
        set_restart_policy(self.gateway.engine, self.gateway.object_name, self.restart_policy)
        ctx.note(self.effect)


class EnableRestart(_RestartPolicyStep):
    """Let the engine restart the container whenever it exits."""

    name = "keep-running"
    needs = ("ensure-container",)


class DisableRestart(_RestartPolicyStep):
    """Keep the engine from restarting the container; before the stop, in case the engine itself restarts."""

    name = "let-stop"
    needs = ("check-engine",)
    restart_policy = RESTART_NEVER
    effect, opposite = _RestartPolicyStep.opposite, _RestartPolicyStep.effect

    def probe(self, ctx: StepContext) -> ProbeResult:
        return done("no container") if self.gateway.container() is None else super().probe(ctx)


class StartContainer(GatewayStep):
    """Start the container."""

    name = "start-container"
    title = "Start"
    needs = ("keep-running",)
    attempts_setting = "start"
    policy = Policy(
        attempts=5,
        backoff=exponential(0.3, cap=2),
        retry_on=lambda error: is_transient(error) or isinstance(error, PortInUseError),
    )

    def probe(self, _ctx: StepContext) -> ProbeResult:
        container = self.gateway.container()
        if container is not None and container.state == "paused":
            return partial("paused")
        if container is not None and container.is_running:
            return done(f"running since {container.started_at[:19].replace('T', ' ')} UTC")
        return absent("stopped")

    def run(self, ctx: StepContext) -> None:
        container = self.gateway.container()
        if container is not None and container.state == "paused":
            unpause_container(self.gateway.engine, self.gateway.object_name)
            ctx.note("resumed from pause")
            return
        for _ in range(_MAX_PORT_CHANGES):
            error = self._try_start()
            if error is None:
                ctx.note(f"API on {self.gateway.api_server_url}")
                return
            spec = self.gateway.published_spec()
            taken = conflicting_ports(str(error), spec)
            key, port = next(iter(taken.items()))
            conflict = _port_taken_error(self.gateway, key, port, cause=error)
            if not self._may_change_ports(taken):
                raise conflict
            ctx.progress(f"{conflict.message}; choosing another")
            self._change_ports(ctx, spec, taken)
        raise PortInUseError(
            f"gateway {self.gateway.name}: other programs took {_MAX_PORT_CHANGES} free ports in a row",
            hint="Run the same command again.",
        )

    def _try_start(self) -> ContainerEngineError | None:
        """Return the engine's error if a port is taken, or None after the start."""
        try:
            start_container(self.gateway.engine, self.gateway.object_name)
        except ContainerEngineError as error:
            if any(message in str(error).lower() for message in _PORT_TAKEN_MESSAGES):
                return error
            raise
        return None

    def _may_change_ports(self, taken: dict[str, int]) -> bool:
        container = self.gateway.container()
        # During an upgrade the ports stay: a rollback restores the parked container with the old ones.
        if container is None or self.gateway.parked_container() is not None:
            return False
        return all(_may_choose_port(self.gateway, container, key) for key in taken)

    def _change_ports(self, ctx: StepContext, spec: GatewaySpec, taken: dict[str, int]) -> None:
        """Recreate the container with other ports; its data is on the volume."""
        # Nothing is removed after the lock was lost: another command may own the container now.
        ctx.check_lock()
        # Image and ports are chosen before the removal: if that fails, the old container still exists.
        container = self.gateway.container()
        image = image_for_new_container(self.gateway, container.image_id if container else "")
        new_spec = self.gateway.with_free_ports(spec, taken)
        remove_container(self.gateway.engine, self.gateway.object_name)
        create_node_container(self.gateway, new_spec, image)


def conflicting_ports(message: str, spec: GatewaySpec) -> dict[str, int]:
    """The gateway's ports that an engine error names, by setting; the API's if it names none."""
    named = {int(number) for number in re.findall(r":(\d{1,5})\b", message)}
    ports = _ports_by_setting(spec)
    return {key: port for key, port in ports.items() if port in named} or {"port": spec.port}
