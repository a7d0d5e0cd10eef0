"""The connection to one container engine, and what that engine says of itself.

Not here: retries (each step has its policy) and anything about gateways.
"""

from __future__ import annotations

import math
import os
from contextlib import suppress
from functools import cached_property
from typing import TYPE_CHECKING, Any

import msgspec

from holdfast.containers.ssh import SCHEME, parse_target
from holdfast.containers.translation import translated
from holdfast.errors import EngineUnfitError, UsageError

if TYPE_CHECKING:
    from holdfast.containers.ssh_master import Patience

OLDEST_API = (1, 41)
"""The first with private cgroup namespaces, without which two nodes would share one cgroup tree."""


class EngineFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What an engine says of itself, as far as a node depends on it."""

    version: str
    api_version: str
    cgroup_version: str
    security_options: tuple[str, ...]

    @property
    def rootless(self) -> bool:
        return any(option.startswith("name=rootless") for option in self.security_options)

    @property
    def user_namespaces(self) -> bool:
        return any(option.startswith("name=userns") for option in self.security_options)


class Engine:
    """One container engine, reached through its API; cheap to hold, connects once."""

    def __init__(self, client: Any, address: str) -> None:
        self._client = client
        self.address = address

    @property
    def client(self) -> Any:
        """The SDK's own client."""
        return self._client

    @property
    def is_local(self) -> bool:
        """Whether the engine's ports are ports of this machine."""
        return self.address.startswith("unix://")

    @cached_property
    def _info(self) -> dict[str, Any]:
        """What it says of itself and its host: a slow answer, asked for once."""
        with translated("asking the engine about itself", self.address):
            return dict(self.client.info())

    @cached_property
    def _version(self) -> dict[str, Any]:
        with translated("asking the engine about itself", self.address):
            return dict(self.client.version(api_version=False))

    @property
    def identity(self) -> str:
        """What the engine calls itself: the same through whatever socket or proxy it is reached."""
        return str(self._info.get("ID", ""))

    @property
    def architecture(self) -> str:
        """The engine's architecture in the words of image manifests (amd64, arm64)."""
        return str(self._version.get("Arch", ""))

    def facts(self) -> EngineFacts:
        """What a node depends on, by the engine's own word; refuses one that is too old."""
        info, version = self._info, self._version
        api_version = str(version.get("ApiVersion", "0.0"))
        if _numbers(api_version) < OLDEST_API:
            raise EngineUnfitError(
                f"the container engine speaks API {api_version}, a node needs at least "
                f"{OLDEST_API[0]}.{OLDEST_API[1]}",
                hint="Update the engine (Docker 20.10 or newer).",
            )
        return EngineFacts(
            version=str(version.get("Version", "")),
            api_version=api_version,
            cgroup_version=str(info.get("CgroupVersion", "1")),
            security_options=tuple(info.get("SecurityOptions") or ()),
        )


class Endpoint(msgspec.Struct, frozen=True, kw_only=True):
    """Where an engine is, and the TLS material to reach it with, if any."""

    address: str
    tls: Any = None


def connect(*, timeout: float = 60.0, patience: Patience | None = None) -> Engine:
    """Reach the engine that DOCKER_HOST or the current Docker context names; ask it to answer.

    `timeout` is how long it may take over one call, `patience` how long a host by ssh may take to be reached.
    """
    endpoint = engine_endpoint()
    if endpoint.address.startswith(SCHEME):
        from holdfast.containers.ssh_engine import SshHost, connect_by_ssh

        target = parse_target(endpoint.address)
        host = SshHost(target) if patience is None else SshHost(target, patience=patience)
        return connect_by_ssh(host, timeout=timeout)
    with translated("reaching the container engine", endpoint.address):
        import docker

        client = docker.APIClient(
            base_url=endpoint.address, version="auto", timeout=math.ceil(timeout), tls=endpoint.tls or False
        )
    return Engine(client, endpoint.address)


def engine_address() -> str:
    """DOCKER_HOST, else the current Docker context, else the default socket."""
    return engine_endpoint().address


def plain_address(address: str) -> str:
    """One spelling for one socket: /var/run is a link to /run on most hosts."""
    path = address.removeprefix("unix://")
    return f"unix://{os.path.realpath(path)}" if path != address else address


def engine_endpoint() -> Endpoint:
    """The address with its TLS material: DOCKER_CERT_PATH and DOCKER_TLS_VERIFY, or the context's own."""
    given = os.environ.get("DOCKER_HOST", "").strip()
    if not given:
        return _context_endpoint() or Endpoint(address="unix:///var/run/docker.sock")
    if not given.startswith("tcp://"):
        return Endpoint(address=given)
    from docker.errors import TLSParameterError
    from docker.utils import kwargs_from_env

    try:
        return Endpoint(address=given, tls=kwargs_from_env().get("tls"))
    except TLSParameterError as error:
        raise UsageError(
            "the TLS files of DOCKER_CERT_PATH cannot be used",
            hint="It must hold ca.pem, cert.pem and key.pem; or unset it and DOCKER_TLS_VERIFY.",
        ) from error


def _context_endpoint() -> Endpoint | None:
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

    with suppress(Exception):  # an SDK that cannot read the context says the same as one that finds none
        context = ContextAPI.get_context(name)
        if context is not None:
            return Endpoint(address=str(context.Host), tls=context.TLSConfig)
    raise UsageError(
        f"the Docker context {name!r} cannot be used",
        hint="Choose one of `docker context ls`, or set DOCKER_HOST.",
    )


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split(".") if part.isdigit())
