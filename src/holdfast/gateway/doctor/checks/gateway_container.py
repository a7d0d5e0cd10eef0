"""Checks of the gateway's container, network, volume, image, ports and settings on the container engine."""

from __future__ import annotations

import datetime as dt
import os
from typing import TYPE_CHECKING

from holdfast.api import parse_optional_timestamp
from holdfast.containers import find_image, port_owner
from holdfast.gateway.doctor.findings import Finding, problem, up_command, warning
from holdfast.gateway.node import (
    NODE_EXIT_MANUAL_ACTION,
    RESTART_ALWAYS,
    RESTART_NEVER,
    is_detached,
    recreate_reason,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from holdfast.containers import ContainerView
    from holdfast.gateway.doctor.facts import GatewayFacts

_CRASH_LOOP_RESTARTS = 3
_CRASH_LOOP_WINDOW = 600.0


def check_container(facts: GatewayFacts) -> Iterator[Finding]:
    """The container exists, runs and is healthy."""
    container = facts.container
    if container is None:
        if facts.parked_container is None:  # an unfinished upgrade has renamed it
            yield _missing_container(facts)
        return
    name, logs = container.name, f"See `holdfast logs {facts.name}`"
    if container.state == "restarting" or _is_crash_looping(facts, container):
        cause = f"The node exits and is restarted repeatedly; its last exit code is {container.exit_code}."
        repair = f"{logs}. Fix the error. {up_command(facts.gateway.name)}"
        yield problem("restart-loop", name, cause, fixed_by="person", repair=repair)
    elif not container.is_running:
        yield _stopped_container(facts, container, logs)
    elif container.state == "paused":
        cause = "The container is paused and does not answer."
        yield problem("container-paused", name, cause, fixed_by="fix", repair="--fix unpauses it.")
    elif container.health == "unhealthy":
        cause = "The node's health check fails."
        repair = f"--fix waits until it is ready and reports what it waits for. {logs}."
        yield problem("container-unhealthy", name, cause, fixed_by="fix", repair=repair)


def check_network(facts: GatewayFacts) -> Iterator[Finding]:
    """The gateway's network exists, and the container is attached to it."""
    network, container, name = facts.network, facts.container, facts.gateway.object_name
    if container is None or not is_detached(container, network):
        return
    if network is None:
        cause = "The gateway's network does not exist."
    elif name not in container.networks:
        cause = "The container is not attached to the gateway's network."
    else:
        cause = "The network was recreated, and the container is attached to the old one."
    repair = "--fix attaches the container to the network."
    yield problem("network-stale", name, cause, fixed_by="fix", repair=repair)


def check_volume(facts: GatewayFacts) -> Iterator[Finding]:
    """The volume with the gateway's data exists."""
    # The file counts even if it is damaged: this machine knows the gateway.
    is_known = facts.container is not None or os.path.lexists(facts.gateway.files.metadata)
    if facts.volume is not None or not is_known:
        return
    cause = "The volume with the gateway's data is not on this container engine."
    repair = (
        "Check that DOCKER_HOST and the Docker context select the right engine, or restore the volume. "
        "The next `up` would create an empty one."
    )
    yield problem("volume-missing", facts.gateway.object_name, cause, fixed_by="person", repair=repair)


def check_image(facts: GatewayFacts) -> Iterator[Finding]:
    """The node image is on the engine if the container has to be created."""
    if facts.container is not None or (facts.volume is None and facts.gateway.metadata is None):
        return
    image = facts.gateway.spec.image
    if find_image(facts.engine, image) is None:
        cause = "The container has to be created, and its node image is not on the container engine."
        repair = f"Build it with `holdfast image build node`, or pull it with `holdfast up {facts.name}`."
        yield problem("image-missing", image, cause, fixed_by="command", repair=repair)


def check_upgrade(facts: GatewayFacts) -> Iterator[Finding]:
    """No upgrade is unfinished."""
    parked = facts.parked_container
    if parked is not None:
        cause = "An upgrade was started and not finished; the old container has this name."
        repair = f"Run `holdfast upgrade {facts.name}` to finish it or to roll it back."
        yield problem("upgrade-unfinished", parked.name, cause, fixed_by="command", repair=repair)


def check_restart_policy(facts: GatewayFacts) -> Iterator[Finding]:
    """The engine restarts the container after the engine or its host was restarted."""
    container = facts.container
    if container is not None and container.state == "running" and container.restart_policy != RESTART_ALWAYS:
        cause = "The engine does not start the container again after a restart of the host."
        repair = "--fix sets its restart policy."
        yield warning("restart-policy", container.name, cause, fixed_by="fix", repair=repair)


def check_ports(facts: GatewayFacts) -> Iterator[Finding]:
    """The ports of a stopped gateway are free."""
    container = facts.container
    if container is None or container.is_running:
        return
    spec = facts.gateway.spec  # the ports that `up` would use: the engine may have rejected the container's
    for port in (spec.port, spec.gateway_port):
        if facts.gateway.host.is_port_taken(port, spec.listen):
            owner = port_owner(facts.engine, port) if facts.engine.is_local else "another program"
            cause = f"The gateway's port is in use by {owner}."
            repair = f"Stop that program, or run `holdfast up {facts.name} --port auto`."
            yield problem("port-taken", f"port {port}", cause, fixed_by="command", repair=repair)


def check_settings(facts: GatewayFacts) -> Iterator[Finding]:
    """The container was created with the current settings."""
    container, gateway = facts.container, facts.gateway
    if container is None:
        return
    expected = gateway.settings.image
    image = find_image(facts.engine, expected) if expected is not None else None
    if expected is not None and (image is None or image.id != container.image_id):
        cause = f"The container runs {container.image}, but the settings say {expected}."
        repair = f"{up_command(facts.gateway.name)} --plan shows the changes; --fix does not make them."
        yield warning("image-differs", container.name, cause, fixed_by="command", repair=repair)
    elif reason := recreate_reason(gateway, container):
        cause = f"The container has to be recreated: {reason}."
        repair = (
            f"{up_command(gateway.name)} It recreates the container on the same volume; --fix does not,"
            " because that stops the gateway for a moment."
        )
        yield warning("settings-differ", container.name, cause, fixed_by="command", repair=repair)


def _missing_container(facts: GatewayFacts) -> Finding:
    subject, up = facts.gateway.object_name, up_command(facts.gateway.name)
    if facts.volume is not None:
        cause = "The container does not exist; the gateway's data is on its volume."
        repair = "--fix recreates the container on that volume."
        return problem("container-missing", subject, cause, fixed_by="fix", repair=repair)
    if facts.gateway.metadata is not None:
        cause = "The container does not exist."
        return problem("container-missing", subject, cause, fixed_by="command", repair=up)
    cause, repair = f"The gateway {facts.name} does not exist.", "Run `holdfast list` to see all gateways."
    return problem("gateway-unknown", subject, cause, fixed_by="person", repair=repair)


def _stopped_container(facts: GatewayFacts, container: ContainerView, logs: str) -> Finding:
    code, name, start = "container-stopped", container.name, f"Run `holdfast start {facts.name}`."
    if container.exit_code == NODE_EXIT_MANUAL_ACTION:
        cause = f"The node cannot run with its settings (exit code {container.exit_code})."
        return problem(code, name, cause, fixed_by="person", repair=f"{logs}.")
    # `stop` sets this policy before it stops the container, and `start` resets it.
    if container.restart_policy == RESTART_NEVER:
        return warning(code, name, "A user stopped the gateway.", fixed_by="command", repair=start)
    is_new = container.state == "created"
    reason = "It was never started." if is_new else f"It exited with code {container.exit_code}."
    cause, repair = f"The container does not run. {reason}", "--fix starts it, as `start` does."
    return problem(code, name, cause, fixed_by="fix", repair=repair)


def _is_crash_looping(facts: GatewayFacts, container: ContainerView) -> bool:
    """Whether the engine restarted the container several times, the last time recently."""
    restarts = int(facts.container_inspect.get("RestartCount", 0)) if container.state == "running" else 0
    if restarts < _CRASH_LOOP_RESTARTS:
        return False
    started = parse_optional_timestamp(container.started_at)
    return started is not None and (dt.datetime.now(dt.UTC) - started).total_seconds() < _CRASH_LOOP_WINDOW
