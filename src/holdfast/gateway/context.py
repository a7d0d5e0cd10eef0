"""The context of one gateway command: settings, host, container engine, cluster and desired spec.

Everything is resolved on first use and then cached, so that a step pays only for what it needs. The context
is immutable: steps pass values to each other as step results.
"""

from __future__ import annotations

import math
import threading
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final, TypeVar

import msgspec

from holdfast import __version__
from holdfast.containers import (
    ContainerView,
    NetworkView,
    VolumeView,
    find_container,
    find_network,
    find_volume,
    labels,
    reserved_ports,
)
from holdfast.errors import ObjectOwnershipError
from holdfast.gateway.hosts import DEFAULT_SETTINGS, Host, LocalHost, check_same_engine, resolve_host
from holdfast.gateway.registry import GatewayFiles, GatewayMetadata, known_gateways, read_metadata
from holdfast.gateway.settings import ResolvedSettings, explain_settings, resolve_settings
from holdfast.gateway.spec import (
    HOLDFAST_NODE,
    LOOPBACK,
    GatewaySpec,
    https_url,
    node_name,
    object_name,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kubernetes.client import ApiClient

    from holdfast.containers import ContainerEngine
    from holdfast.gateway.settings import Settings

V = TypeVar("V", ContainerView, NetworkView, VolumeView)

DEFAULT_IMAGE = f"holdfast/node:{__version__}"
# Settings of the container that its gateway records.
CONTAINER_SETTINGS = ("port", "gateway_port", "listen", "api_names", "gpus")


class UpOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Options of one command that are not settings."""

    remote: str | None = None
    recreate: bool = False
    wipe: bool = False
    use: bool = False

    def without_replacement(self) -> UpOptions:
        """The options without those that replace the container."""
        return msgspec.structs.replace(self, recreate=False, wipe=False)


class GatewayContext:
    """One gateway during one command.

    Args:
        name: name of the gateway.
        resolved: the settings; default: those of the environment and holdfast.toml.
        options: options of this command.
        is_upgrade: whether this command may change the Kubernetes version, because it takes a snapshot first.
    """

    def __init__(
        self,
        name: str,
        resolved: ResolvedSettings | None = None,
        options: UpOptions | None = None,
        *,
        is_upgrade: bool = False,
    ) -> None:
        self.name: Final = name
        self.resolved: Final = resolved if resolved is not None else resolve_settings()
        self.options: Final = options or UpOptions()
        self.contract: Final = HOLDFAST_NODE
        self.is_upgrade: Final = is_upgrade
        self.files: Final = GatewayFiles(name)
        self.object_name: Final = object_name(name)
        self.node_name: Final = node_name(name)
        # Set by Ctrl-C during the run of the command.
        self.stop: Final = threading.Event()

    @property
    def settings(self) -> Settings:
        return self.resolved.settings

    def parameters(self) -> dict[str, object]:
        """The non-default settings, and the options of the command; contains no secret."""
        explicit = (each for each in explain_settings(self.resolved) if each.source != "default")
        options = msgspec.structs.asdict(self.options)
        return {each.key: each.value for each in explicit} | {k: v for k, v in options.items() if v}

    @cached_property
    def host(self) -> Host:
        """The host of the gateway: the recorded one, else the requested one, else this machine."""
        return resolve_host(
            self.name, requested=self.options.remote, metadata=self.metadata, settings=self.settings
        )

    @cached_property
    def engine(self) -> ContainerEngine:
        """The container engine of the host.

        Raises:
            UsageError: The gateway was created on another engine.
        """
        engine = self.host.engine()
        # On another engine every probe would find nothing, and `up` would create a second, empty gateway.
        if self.metadata is not None:
            check_same_engine(engine, self.metadata, self.files.metadata)
        return engine

    @property
    def has_engine_answered(self) -> bool:
        """Whether the container engine has answered in this command: if it does not now, it may restart."""
        return "engine" in self.__dict__

    @cached_property
    def local_engine(self) -> ContainerEngine:
        """The container engine of this machine, also for a gateway on a remote host."""
        return LocalHost(self.settings).engine() if self.host.remote else self.engine

    @cached_property
    def api_client(self) -> ApiClient:
        """The Kubernetes client, for callers with their own retry policy.

        It opens no tunnel, because a preview must not: in a run, the step `open-tunnel` does.
        """
        from holdfast.kube import api_client

        # Since Python 3.12, cached_property takes no lock: steps on two threads may both create a client.
        # Both clients work.
        return api_client(self.files.kubeconfig)

    @cached_property
    def metadata(self) -> GatewayMetadata | None:
        return read_metadata(self.name)

    @cached_property
    def spec(self) -> GatewaySpec:
        """The desired gateway: explicit settings, else the existing container, else metadata and defaults."""
        # An upgrade creates the new container after it parked the old one: until then, the parked container
        # has the ports and settings to keep.
        containers = [each for each in (self.container(), self.parked_container()) if each is not None]
        # A container that never started may have settings that the engine rejects, such as a taken port: the
        # recorded ones have worked.
        has_record = self.metadata is not None
        container = next((each for each in containers if not (each.never_started and has_record)), None)
        port = self._port(container, "port", self.contract.api_port, ())
        published = _published_port(container, self.contract.api_port)
        return GatewaySpec(
            name=self.name,
            image=self._image(next(iter(containers), None)),
            port=port,
            gateway_port=self._port(container, "gateway_port", self.contract.gateway_port, (port,)),
            listen=self._from_container("listen", published and (published[0] or LOOPBACK)),
            api_names=self._from_container(
                "api_names", self._container_api_names(container, published) if container else None
            ),
            gpus=self._from_container("gpus", container.gpus if container else None),
        )

    def with_recorded_settings(self) -> GatewayContext:
        """The same gateway, without explicit settings of its container and without its replacement."""
        origins = {
            key: origin for key, origin in self.resolved.origins.items() if key not in CONTAINER_SETTINGS
        }
        defaults = {key: getattr(DEFAULT_SETTINGS, key) for key in CONTAINER_SETTINGS}
        settings = msgspec.structs.replace(self.settings, **defaults)
        resolved = msgspec.structs.replace(self.resolved, settings=settings, origins=origins)
        return GatewayContext(self.name, resolved, self.options.without_replacement())

    def published_spec(self) -> GatewaySpec:
        """The spec with the address and the ports that the container publishes now.

        Changed settings apply only when `up` recreates the container. `start-container` replaces automatic
        ports that another program has taken since they were chosen.
        """
        current: dict[str, str | int] = {}
        container = self.container()
        for key, inside in (("gateway_port", self.contract.gateway_port), ("port", self.contract.api_port)):
            published = _published_port(container, inside)
            if published is not None:
                current |= {"listen": published[0] or LOOPBACK, key: published[1]}
        return msgspec.structs.replace(self.spec, **current)

    def with_free_ports(self, spec: GatewaySpec, keys: Iterable[str]) -> GatewaySpec:
        """Return the spec with a free port for each of these settings."""
        taken = {spec.port, spec.gateway_port}
        for key in keys:
            port = self.host.free_port(self._reserved_ports() | taken)
            taken.add(port)
            spec = msgspec.structs.replace(spec, **{key: port})
        return spec

    def container(self) -> ContainerView | None:
        """Inspect the gateway's container.

        Raises:
            ObjectOwnershipError: The container of that name is not the gateway's.
        """
        return self._check_owned("container", find_container(self.engine, self.object_name))

    def network(self) -> NetworkView | None:
        """Inspect the gateway's network; raises like `container`."""
        return self._check_owned("network", find_network(self.engine, self.object_name))

    def volume(self) -> VolumeView | None:
        """Inspect the gateway's volume; raises like `container`."""
        return self._check_owned("volume", find_volume(self.engine, self.object_name))

    @property
    def parked_name(self) -> str:
        """The name of the old container during an upgrade; no gateway's container can have it."""
        return f"before-of-{self.object_name}"

    def parked_container(self) -> ContainerView | None:
        """The old container of an unfinished upgrade."""
        container = find_container(self.engine, self.parked_name)
        # Steps remove and rename the parked container, so a container of another program does not count.
        if container is None or container.labels.get(labels.GATEWAY) != self.name:
            return None
        return container

    def _check_owned(self, kind: str, view: V | None) -> V | None:
        """Return an object with the gateway's name; reject one without the gateway's label.

        Steps stop and remove what they find under that name, which must never be another program's object.
        """
        if view is not None and view.labels.get(labels.GATEWAY) != self.name:
            raise ObjectOwnershipError(
                f"{kind} {self.object_name}: exists, but holdfast did not create it",
                hint=f"Rename or remove that {kind}, or choose another name for the gateway.",
            )
        return view

    @property
    def replaces_container(self) -> bool:
        """Whether the command removes an existing container first (`--recreate`, `--wipe`)."""
        return self.options.recreate or self.options.wipe

    @property
    def stop_seconds(self) -> int:
        """The grace period of a stop; the engine takes whole seconds."""
        return math.ceil(self.settings.timeouts.stop)

    @property
    def api_server_url(self) -> str:
        """The URL of Kubernetes from this machine."""
        spec = self.published_spec()
        return https_url(*self.host.address(spec.port, spec.listen))

    @property
    def gateway_api_url(self) -> str:
        """The URL of the gateway's own API from this machine."""
        spec = self.published_spec()
        return https_url(*self.host.address(spec.gateway_port, spec.listen))

    def _image(self, container: ContainerView | None) -> str:
        if self.settings.image is not None:
            return self.settings.image
        if container is not None:
            return container.image
        return self.metadata.image if self.metadata is not None else DEFAULT_IMAGE

    def _from_container(self, key: str, current: Any) -> Any:
        """An explicit setting, else the container's value, else the recorded one, else the default."""
        if self.resolved.is_explicit(key):
            return getattr(self.settings, key)
        return current if current is not None else getattr(self.metadata or self.settings, key)

    def _container_api_names(
        self, container: ContainerView, published: tuple[str, int] | None
    ) -> tuple[str, ...]:
        listen = published[0] if published is not None else ""  # container_config adds it to the names
        names = container.environment.get(self.contract.sans_variable, "")
        return tuple(name for name in names.split(",") if name and name != listen)

    def _port(self, container: ContainerView | None, key: str, inside: int, others: tuple[int, ...]) -> int:
        """The configured port; else the current one, unless `auto` is explicit and another program has it."""
        configured = getattr(self.settings, key)
        if configured != "auto":
            return int(configured)
        published = _published_port(container, inside)
        current = published[1] if published is not None else getattr(self.metadata, key, None)
        # The gateway's own running container listens on its port, which must not count as taken.
        is_ours = container is not None and container.is_running
        may_change = self.resolved.is_explicit(key) and not is_ours
        if not current or (may_change and self.host.is_port_taken(current)):
            return self.host.free_port(self._reserved_ports() | set(others))
        return int(current)

    def _reserved_ports(self) -> set[int]:
        """The ports of all other gateways; one that is being recreated has no container for some seconds."""
        recorded = [
            metadata
            for metadata in known_gateways()
            if metadata.name != self.name and metadata.remote == self.host.remote
        ]
        return reserved_ports(self.engine) | {
            port for metadata in recorded for port in (metadata.port, metadata.gateway_port)
        }


def _published_port(container: ContainerView | None, inside: int) -> tuple[str, int] | None:
    return container.ports.get(f"{inside}/tcp") if container is not None else None
