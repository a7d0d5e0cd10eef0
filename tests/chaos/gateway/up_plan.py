"""The plan of `up` as the crash matrix wants it: one gateway for each world, on the real engine."""

from __future__ import annotations

import hashlib
import os
import ssl
import uuid
from contextlib import suppress
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from holdfast.containers.containers import find_container, list_containers
from holdfast.containers.engine import connect
from holdfast.containers.labels import GATEWAY
from holdfast.containers.networks import find_network, find_volume
from holdfast.engine import Workflow
from holdfast.events import Bus
from holdfast.gateway import commands
from holdfast.gateway.plan import up_steps
from holdfast.gateway.settings import resolve
from holdfast.gateway.spec import read_metadata
from holdfast.gateway.work import Work

if TYPE_CHECKING:
    from pathlib import Path

    from holdfast.containers.containers import ContainerView
    from holdfast.engine import RunResult

OTHER_NAME = "asked-for-later.example"
"""A name for the API's certificate that only a changed setting asks for."""

PREFIX = os.environ.setdefault("CRASH_MATRIX_PREFIX", f"crash{uuid.uuid4().hex[:6]}-")
"""Gateways of this test alone; its children are told by their environment."""


def gateway_of(world: Path) -> str:
    """A name for the gateway of one world: children and test find the same one."""
    return f"{PREFIX}{hashlib.sha256(str(world).encode()).hexdigest()[:8]}"


def build(world: Path) -> Workflow:
    os.environ["HOLDFAST_HOME"] = str(world / "home")
    os.environ.setdefault("HOLDFAST_WORKLOADS", "false")
    return Workflow("up", up_steps(Work(gateway_of(world))))


class WithSettings(Workflow):
    """`up` whose parameters are settings: what a person changes between two runs of it."""

    def __init__(self, work: Work) -> None:
        super().__init__("up", up_steps(work))
        self.work = work

    def run(self, params: dict[str, object] | None = None, **options: Any) -> RunResult:
        self.work.resolved = resolve(params or {})
        return super().run(**options)


def build_with_settings(world: Path) -> Workflow:
    os.environ["HOLDFAST_HOME"] = str(world / "home")
    os.environ.setdefault("HOLDFAST_WORKLOADS", "false")
    return WithSettings(Work(gateway_of(world)))


def observe(world: Path) -> dict[str, object]:
    """What is there when all is done, without names; then the gateway is taken away again."""
    os.environ["HOLDFAST_HOME"] = str(world / "home")
    name, engine = gateway_of(world), connect()
    container = find_container(engine, f"holdfast-{name}")
    seen = {
        "containers": len(list_containers(engine, label=f"{GATEWAY}={name}")),
        "running": container is not None and container.running,
        "network": find_network(engine, f"holdfast-{name}") is not None,
        "volume": find_volume(engine, f"holdfast-{name}") is not None,
        "kubeconfig": Work(name).files.kubeconfig.stat().st_mode & 0o777,
        "remembered": read_metadata(name) is not None,
        "names": _names_of(world, container),
    }
    take_away(name)
    return seen


def _names_of(world: Path, container: ContainerView | None) -> dict[str, bool]:
    """Whether the changed name is what the container was made with, and in the certificate that is served."""
    work = Work(gateway_of(world))
    made_with = container.environment.get(work.profile.sans_variable, "") if container else ""
    host, port = urlsplit(work.server).netloc.split(":")
    served = ssl.PEM_cert_to_DER_cert(ssl.get_server_certificate((host, int(port))))
    return {"container": OTHER_NAME in made_with.split(","), "certificate": OTHER_NAME.encode() in served}


def take_away(name: str) -> None:
    """Nobody looks any more: the node need not end in order."""
    from docker.errors import APIError

    with suppress(APIError):
        connect().client.kill(f"holdfast-{name}")
    commands.destroy(name, with_data=True, bus=Bus())


def clear() -> None:
    """Take away what cases without a verdict left on the engine."""
    engine = connect()
    volumes = engine.client.volumes(filters={"label": GATEWAY})["Volumes"] or []
    for name in {volume["Labels"][GATEWAY] for volume in volumes}:
        if name.startswith(PREFIX):
            take_away(name)
    del os.environ["CRASH_MATRIX_PREFIX"]
    os.environ.pop("HOLDFAST_HOME", None)
    os.environ.pop("HOLDFAST_WORKLOADS", None)
