"""The connection to one container engine, and what that engine says of itself.

Not here: retries (each step has its policy) and anything about gateways.
"""

from __future__ import annotations

import os
from contextlib import suppress
from typing import Any

import msgspec

from holdfast.containers.translation import translated
from holdfast.errors import EngineUnfitError

OLDEST_API = (1, 41)
"""The first with private cgroup namespaces, without which two nodes would share one cgroup tree."""


class EngineFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What an engine says of itself, as far as a node depends on it."""

    id: str
    version: str
    api_version: str
    architecture: str
    cgroup_version: str
    cgroup_driver: str
    security_options: tuple[str, ...]
    data_root: str
    memory_bytes: int

    @property
    def rootless(self) -> bool:
        return any(option.startswith("name=rootless") for option in self.security_options)

    @property
    def user_namespaces(self) -> bool:
        return any(option.startswith("name=userns") for option in self.security_options)


class Engine:
    """One container engine, reached through its API; cheap to hold, connects once."""

    def __init__(self, client: Any, address: str) -> None:
        self.client = client
        self.address = address

    @property
    def is_local(self) -> bool:
        """Whether the engine's ports are ports of this machine."""
        return self.address.startswith("unix://")

    def facts(self) -> EngineFacts:
        """Ask the engine for what a node depends on; refuse one that is too old."""
        with translated("asking the engine about itself", self.address):
            info = self.client.info()
            version = self.client.version(api_version=False)
        api_version = str(version.get("ApiVersion", "0.0"))
        if _numbers(api_version) < OLDEST_API:
            raise EngineUnfitError(
                f"the container engine speaks API {api_version}, a node needs at least "
                f"{OLDEST_API[0]}.{OLDEST_API[1]}",
                hint="Update the engine (Docker 20.10 or newer).",
            )
        return EngineFacts(
            id=str(info.get("ID", "")),
            version=str(version.get("Version", "")),
            api_version=api_version,
            architecture=str(info.get("Architecture", "")),
            cgroup_version=str(info.get("CgroupVersion", "1")),
            cgroup_driver=str(info.get("CgroupDriver", "")),
            security_options=tuple(info.get("SecurityOptions") or ()),
            data_root=str(info.get("DockerRootDir", "")),
            memory_bytes=int(info.get("MemTotal", 0)),
        )


def connect(*, timeout: int = 60) -> Engine:
    """Reach the engine that DOCKER_HOST or the current Docker context names; ask it to answer."""
    address = engine_address()
    with translated("reaching the container engine", address):
        import docker

        client = docker.APIClient(base_url=address, version="auto", timeout=timeout, use_ssh_client=True)
    return Engine(client, address)


def engine_address() -> str:
    """DOCKER_HOST, else the current Docker context, else the default socket."""
    given = os.environ.get("DOCKER_HOST", "").strip()
    if given:
        return given
    return _context_address() or "unix:///var/run/docker.sock"


def _context_address() -> str | None:
    """The endpoint of the Docker context in use, where there is one that is not the default."""
    from pathlib import Path

    config = Path(os.environ.get("DOCKER_CONFIG", "~/.docker")).expanduser() / "config.json"
    name = os.environ.get("DOCKER_CONTEXT", "")
    if not name:
        with suppress(OSError, ValueError):
            name = msgspec.json.decode(config.read_bytes(), type=dict).get("currentContext", "")
    if not name or name == "default":
        return None
    from docker.context import ContextAPI

    context = ContextAPI.get_context(name)
    return str(context.Host) if context is not None else None


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split(".") if part.isdigit())
