"""The plan of `up` around data that is there, as the crash matrix wants it: one gateway, one volume."""

from __future__ import annotations

import hashlib
import os
import shutil
import uuid
from typing import TYPE_CHECKING

from holdfast.containers.commands import read_file
from holdfast.containers.containers import list_containers, remove_container
from holdfast.containers.engine import connect
from holdfast.containers.labels import GATEWAY
from holdfast.containers.networks import find_network, remove_network
from holdfast.engine import Workflow
from holdfast.events import Bus
from holdfast.gateway import commands
from holdfast.gateway.plan import up_steps
from holdfast.gateway.settings import resolve
from holdfast.gateway.spec import GatewayFiles, active_name, read_metadata
from holdfast.gateway.work import Work

if TYPE_CHECKING:
    from pathlib import Path

NAME = os.environ.setdefault("CRASH_MATRIX_GATEWAY", f"crash-data-{uuid.uuid4().hex[:6]}")
"""The gateway of this test alone; its children are told by their environment."""

MIRRORED = "mirrored.example"
"""A registry that nobody asks: each world has another mirror for it."""


def set_up(home: Path) -> None:
    """From here on commands and children have this home, and no workloads."""
    os.environ.update(HOLDFAST_HOME=str(home), HOLDFAST_WORKLOADS="false")


def _mirror(world: Path) -> str:
    return f"https://{hashlib.sha256(str(world).encode()).hexdigest()[:8]}.example"


def build(world: Path) -> Workflow:
    """The `up` of one world: before its first run all but the volume is lost."""
    if not (world / "lost").exists():
        lose_all_but_the_volume()
        world.mkdir(parents=True, exist_ok=True)
        (world / "lost").touch()
    mirrors = f"{MIRRORED}={_mirror(world)}"
    return Workflow("up", up_steps(Work(NAME, resolve({"registries.mirrors": mirrors}))))


def build_as_it_is(world: Path) -> Workflow:
    """The `up` of a gateway that is left as it was found."""
    del world
    return Workflow("up", up_steps(Work(NAME)))


def lose_all_but_the_volume() -> None:
    """Container and network, and what this machine knew of the gateway."""
    engine, name = connect(), f"holdfast-{NAME}"
    remove_container(engine, name)
    remove_network(engine, name)
    shutil.rmtree(GatewayFiles(NAME).folder, ignore_errors=True)


def observe(world: Path) -> dict[str, object]:
    """What is there when all is done, without names."""
    engine, work = connect(), Work(NAME)
    container = work.container()
    hosts = read_file(engine, work.object, f"{work.profile.registries_path}/{MIRRORED}/hosts.toml") or b""
    return {
        "containers": len(list_containers(engine, label=f"{GATEWAY}={NAME}")),
        "running": container is not None and container.running,
        "network": find_network(engine, work.object) is not None,
        "mirror": _mirror(world).encode() in hosts,
        "kubeconfig": work.files.kubeconfig.stat().st_mode & 0o777,
        "remembered": read_metadata(NAME) is not None,
        "active": active_name() == NAME,
    }


def clear() -> None:
    """Take the gateway away."""
    commands.destroy(NAME, with_data=True, bus=Bus())
    for key in ("CRASH_MATRIX_GATEWAY", "HOLDFAST_HOME", "HOLDFAST_WORKLOADS"):
        os.environ.pop(key, None)
