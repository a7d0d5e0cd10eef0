"""The plan of `up` as the crash matrix wants it: one gateway for each world, on the real engine."""

from __future__ import annotations

import hashlib
import os
import ssl
import uuid
from contextlib import suppress
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from holdfast.containers import GATEWAY, find_container, find_network, find_volume, list_containers
from holdfast.events import EventBus
from holdfast.gateway import GatewayContext, commands, read_metadata, resolve_settings
from holdfast.gateway.plan import up_steps
from holdfast.remote import connect
from holdfast.workflow import Workflow

if TYPE_CHECKING:
    from pathlib import Path

    from holdfast.containers import ContainerView
    from holdfast.workflow import RunResult

OTHER_NAME = "asked-for-later.example"
"""A name for the API's certificate that only a changed setting asks for."""

PREFIX = os.environ.setdefault("CRASH_MATRIX_PREFIX", f"crash{uuid.uuid4().hex[:6]}-")
"""The gateways of this test; child processes read their names from the environment."""


def gateway_name(world: Path) -> str:
    """A name for the gateway of one world: children and test find the same one."""
    return f"{PREFIX}{hashlib.sha256(str(world).encode()).hexdigest()[:8]}"


def build(world: Path) -> Workflow:
    os.environ["HOLDFAST_HOME"] = str(world / "home")
    os.environ.setdefault("HOLDFAST_WORKLOADS", "false")
    return Workflow("up", up_steps(GatewayContext(gateway_name(world))))


class WithSettings(Workflow):
    """`up` whose parameters are the settings that a user changes between two runs."""

    def __init__(self, gateway: GatewayContext) -> None:
        super().__init__("up", up_steps(gateway))
        self.gateway = gateway

    def run(self, params: dict[str, object] | None = None, **options: Any) -> RunResult:
        self.gateway.resolved = resolve_settings(params or {})
        return super().run(**options)


def build_with_settings(world: Path) -> Workflow:
    os.environ["HOLDFAST_HOME"] = str(world / "home")
    os.environ.setdefault("HOLDFAST_WORKLOADS", "false")
    return WithSettings(GatewayContext(gateway_name(world)))


def observe(world: Path) -> dict[str, object]:
    """Return the final state, without names, and destroy the gateway."""
    os.environ["HOLDFAST_HOME"] = str(world / "home")
    name, engine = gateway_name(world), connect()
    container = find_container(engine, f"holdfast-{name}")
    seen = {
        "containers": len(list_containers(engine, label=f"{GATEWAY}={name}")),
        "running": container is not None and container.is_running,
        "network": find_network(engine, f"holdfast-{name}") is not None,
        "volume": find_volume(engine, f"holdfast-{name}") is not None,
        "kubeconfig": GatewayContext(name).files.kubeconfig.stat().st_mode & 0o777,
        "remembered": read_metadata(name) is not None,
        "names": _names_of(world, container),
    }
    remove_gateway(name)
    return seen


def _names_of(world: Path, container: ContainerView | None) -> dict[str, bool]:
    """Whether the changed name is what the container was made with, and in the certificate that is served."""
    gateway = GatewayContext(gateway_name(world))
    made_with = container.environment.get(gateway.contract.sans_variable, "") if container else ""
    host, port = urlsplit(gateway.api_server_url).netloc.split(":")
    served = ssl.PEM_cert_to_DER_cert(ssl.get_server_certificate((host, int(port))))
    return {"container": OTHER_NAME in made_with.split(","), "certificate": OTHER_NAME.encode() in served}


def remove_gateway(name: str) -> None:
    """Kill the node: its clean shutdown is not under test."""
    from docker.errors import APIError

    with suppress(APIError):
        connect().client.kill(f"holdfast-{name}")
    commands.destroy(name, with_data=True, bus=EventBus())


def clear() -> None:
    """Take away what cases without a verdict left on the engine."""
    engine = connect()
    volumes = engine.client.volumes(filters={"label": GATEWAY})["Volumes"] or []
    for name in {volume["Labels"][GATEWAY] for volume in volumes}:
        if name.startswith(PREFIX):
            remove_gateway(name)
    del os.environ["CRASH_MATRIX_PREFIX"]
    os.environ.pop("HOLDFAST_HOME", None)
    os.environ.pop("HOLDFAST_WORKLOADS", None)
