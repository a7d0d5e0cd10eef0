"""The plan of `up` around data that is there, as the crash matrix wants it: one gateway, one volume."""

from __future__ import annotations

import hashlib
import os
import shutil
import uuid
from typing import TYPE_CHECKING

from holdfast.containers import (
    GATEWAY,
    find_network,
    list_containers,
    read_file,
    remove_container,
    remove_network,
)
from holdfast.events import EventBus
from holdfast.gateway import (
    GatewayContext,
    GatewayFiles,
    active_gateway,
    commands,
    read_metadata,
    resolve_settings,
)
from holdfast.gateway.plan import up_steps
from holdfast.remote import connect
from holdfast.workflow import Workflow

if TYPE_CHECKING:
    from pathlib import Path

NAME = os.environ.setdefault("CRASH_MATRIX_GATEWAY", f"crash-data-{uuid.uuid4().hex[:6]}")
"""The gateway of this test; child processes read its name from the environment."""

MIRRORED_REGISTRY = "mirrored.example"
"""A registry that receives no request: each world has another mirror for it."""


def set_up(home: Path) -> None:
    """From here on commands and children have this home, and no workloads."""
    os.environ.update(HOLDFAST_HOME=str(home), HOLDFAST_WORKLOADS="false")


def _mirror_url(world: Path) -> str:
    return f"https://{hashlib.sha256(str(world).encode()).hexdigest()[:8]}.example"


def build(world: Path) -> Workflow:
    """The `up` of one world: before its first run all but the volume is lost."""
    if not (world / "lost").exists():
        remove_all_but_volume()
        world.mkdir(parents=True, exist_ok=True)
        (world / "lost").touch()
    mirrors = f"{MIRRORED_REGISTRY}={_mirror_url(world)}"
    return Workflow("up", up_steps(GatewayContext(NAME, resolve_settings({"registries.mirrors": mirrors}))))


def build_unchanged(world: Path) -> Workflow:
    """The `up` of a gateway that is left as it was found."""
    del world
    return Workflow("up", up_steps(GatewayContext(NAME)))


def remove_all_but_volume() -> None:
    """Container and network, and what this machine knew of the gateway."""
    engine, name = connect(), f"holdfast-{NAME}"
    remove_container(engine, name)
    remove_network(engine, name)
    shutil.rmtree(GatewayFiles(NAME).directory, ignore_errors=True)


def observe(world: Path) -> dict[str, object]:
    """The final state, without names."""
    engine, gateway = connect(), GatewayContext(NAME)
    container = gateway.container()
    hosts = (
        read_file(
            engine, gateway.object_name, f"{gateway.contract.registries_path}/{MIRRORED_REGISTRY}/hosts.toml"
        )
        or b""
    )
    return {
        "containers": len(list_containers(engine, label=f"{GATEWAY}={NAME}")),
        "running": container is not None and container.is_running,
        "network": find_network(engine, gateway.object_name) is not None,
        "mirror": _mirror_url(world).encode() in hosts,
        "kubeconfig": gateway.files.kubeconfig.stat().st_mode & 0o777,
        "remembered": read_metadata(NAME) is not None,
        "active": active_gateway() == NAME,
    }


def clear() -> None:
    """Take the gateway away."""
    commands.destroy(NAME, with_data=True, bus=EventBus())
    for key in ("CRASH_MATRIX_GATEWAY", "HOLDFAST_HOME", "HOLDFAST_WORKLOADS"):
        os.environ.pop(key, None)
