"""The connection to one container engine, and the engine's own description of itself.

Callers retry, not this module: each workflow step has its own policy.
"""

from __future__ import annotations

import os
from contextlib import suppress
from functools import cached_property
from typing import Any

import msgspec

from holdfast.containers.errors import translate_errors
from holdfast.errors import ContainerEngineUnsupportedError, UsageError

# The first version with private cgroup namespaces: without them two nodes would share one cgroup tree.
MIN_API_VERSION = (1, 41)


class EngineFacts(msgspec.Struct, frozen=True, kw_only=True):
    """The properties of a container engine that a node depends on."""

    version: str
    api_version: str
    cgroup_version: str
    security_options: tuple[str, ...]

    @property
    def is_rootless(self) -> bool:
        return any(option.startswith("name=rootless") for option in self.security_options)

    @property
    def has_user_namespaces(self) -> bool:
        return any(option.startswith("name=userns") for option in self.security_options)


class ContainerEngine:
    """One container engine, reached through its API."""

    def __init__(self, client: Any, address: str) -> None:
        self._client = client
        self.address = address

    @property
    def client(self) -> Any:
        """The low-level client of the Docker SDK."""
        return self._client

    @property
    def is_local(self) -> bool:
        """Whether the engine publishes ports on this machine."""
        return self.address.startswith("unix://")

    @cached_property
    def _info(self) -> dict[str, Any]:
        with translate_errors("reading the engine's description", self.address):
            return dict(self.client.info())  # slow, so it is requested once

    @cached_property
    def _version(self) -> dict[str, Any]:
        with translate_errors("reading the engine's version", self.address):
            return dict(self.client.version(api_version=False))

    @property
    def engine_id(self) -> str:
        """The engine's own ID, which does not depend on the socket or proxy that leads to it."""
        return str(self._info.get("ID", ""))

    @property
    def architecture(self) -> str:
        """The architecture in the terms of image manifests (amd64, arm64)."""
        return str(self._version.get("Arch", ""))

    def check_answers(self) -> None:
        """Raise unless the engine answers."""
        with translate_errors("reaching the container engine", self.address):
            self.client.ping()

    def facts(self) -> EngineFacts:
        """Return the engine's properties.

        Raises:
            ContainerEngineUnsupportedError: the engine is too old.
        """
        info, version = self._info, self._version
        api_version = str(version.get("ApiVersion", "0.0"))
        if tuple(int(part) for part in api_version.split(".") if part.isdigit()) < MIN_API_VERSION:
            raise ContainerEngineUnsupportedError(
                f"container engine: API version {api_version}, but a node needs at least "
                f"{MIN_API_VERSION[0]}.{MIN_API_VERSION[1]}",
                hint="Update Docker to version 20.10 or newer.",
            )
        return EngineFacts(
            version=str(version.get("Version", "")),
            api_version=api_version,
            cgroup_version=str(info.get("CgroupVersion", "1")),
            security_options=tuple(info.get("SecurityOptions") or ()),
        )


class EngineEndpoint(msgspec.Struct, frozen=True, kw_only=True):
    """The address of a container engine, and the TLS configuration for it."""

    address: str
    tls: Any = None


def engine_address() -> str:
    """Return DOCKER_HOST, else the address of the current Docker context, else the default socket."""
    return engine_endpoint().address


def normalize_address(address: str) -> str:
    """Resolve links in a socket path: /var/run is a link to /run on most hosts."""
    path = address.removeprefix("unix://")
    return f"unix://{os.path.realpath(path)}" if path != address else address


def engine_endpoint() -> EngineEndpoint:
    """Return the address with its TLS files, from DOCKER_CERT_PATH and DOCKER_TLS_VERIFY or the context."""
    # As in the docker command, DOCKER_HOST takes precedence over DOCKER_CONTEXT.
    address = os.environ.get("DOCKER_HOST", "").strip()
    if not address:
        return _context_endpoint() or EngineEndpoint(address="unix:///var/run/docker.sock")
    if not address.startswith("tcp://"):
        return EngineEndpoint(address=address)
    from docker.errors import TLSParameterError
    from docker.utils import kwargs_from_env

    try:
        return EngineEndpoint(address=address, tls=kwargs_from_env().get("tls"))
    except TLSParameterError as error:
        raise UsageError(
            "DOCKER_CERT_PATH: the TLS files cannot be used",
            hint="Put ca.pem, cert.pem and key.pem there, or unset it and DOCKER_TLS_VERIFY.",
        ) from error


def _context_endpoint() -> EngineEndpoint | None:
    """The endpoint of the current Docker context; None for the default context."""
    from pathlib import Path

    config = Path(os.environ.get("DOCKER_CONFIG", "~/.docker")).expanduser() / "config.json"
    name = os.environ.get("DOCKER_CONTEXT", "")
    if not name:
        with suppress(OSError, ValueError):
            name = msgspec.json.decode(config.read_bytes(), type=dict).get("currentContext", "")
    if not name or name == "default":
        return None
    from docker.context import ContextAPI

    with suppress(Exception):  # the SDK raises various errors for a damaged context
        context = ContextAPI.get_context(name)
        if context is not None:
            return EngineEndpoint(address=str(context.Host), tls=context.TLSConfig)
    raise UsageError(
        f"Docker context {name!r}: cannot be used",
        hint="Choose one of `docker context ls`, or set DOCKER_HOST.",
    )
