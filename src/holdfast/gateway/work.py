"""What the steps of one gateway command share: the place, the engine, the cluster, what was asked for.

Everything is found out on first use and then kept, so that a step asks only for what it needs.
Not here: effects.
"""

from __future__ import annotations

import math
from functools import cached_property
from typing import TYPE_CHECKING

import msgspec

from holdfast import __version__
from holdfast.containers import labels
from holdfast.containers.containers import ContainerView, find_container
from holdfast.containers.ports import reserved_ports
from holdfast.errors import ForeignObjectError
from holdfast.gateway.identity import node_name, object_name
from holdfast.gateway.place import Place, place_of, refuse_other_engine
from holdfast.gateway.profile import HOLDFAST, NodeProfile
from holdfast.gateway.settings import Resolved, Settings, resolve
from holdfast.gateway.spec import LOOPBACK, GatewayFiles, GatewaySpec, Metadata, read_metadata, url_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kubernetes.client import ApiClient

    from holdfast.containers.engine import Engine
    from holdfast.kube import Objects

DEFAULT_IMAGE = f"holdfast/node:{__version__}"


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """What this one command was told beyond the settings."""

    remote: str | None = None
    recreate: bool = False
    wipe: bool = False


class Work:
    """One gateway, while a command works on it."""

    def __init__(
        self,
        name: str,
        resolved: Resolved | None = None,
        asked: Asked | None = None,
        profile: NodeProfile = HOLDFAST,
    ) -> None:
        self.name = name
        self.resolved = resolved if resolved is not None else resolve()
        self.asked = asked or Asked()
        self.profile = profile
        self.files = GatewayFiles(name)
        self.object = object_name(name)
        self.node = node_name(name)
        self.old_image = ""
        """The image of a container that was removed by this command, by id; nothing where none was."""
        self.made_volume = False
        """Whether this command made the volume, so that there is nothing on it yet."""
        self.upgrading = False
        """Whether this command may change the version: a snapshot and a way back are seen to."""

    @property
    def settings(self) -> Settings:
        return self.resolved.settings

    @cached_property
    def place(self) -> Place:
        """Where it is remembered to be, else where it was asked for, else here."""
        return place_of(
            self.name, asked=self.asked.remote, remembered=self.remembered, settings=self.settings
        )

    @cached_property
    def engine(self) -> Engine:
        """The engine there; refuses another one than the gateway was made on."""
        found = self.place.engine()
        if self.remembered is not None:
            refuse_other_engine(found, self.remembered, self.files.metadata)
        return found

    @cached_property
    def cluster(self) -> Objects:
        """The gateway's Kubernetes, through the kubeconfig on this machine; steps wait for that first."""
        from holdfast.kube import Objects

        return Objects(self.api_client, timeout=self.settings.timeouts.request)

    @cached_property
    def api_client(self) -> ApiClient:
        """The connection below `cluster`, for who has other terms of retrying."""
        from holdfast.gateway.remote import reach
        from holdfast.kube import api_client

        reach(self)
        return api_client(self.files.kubeconfig)

    @cached_property
    def remembered(self) -> Metadata | None:
        return read_metadata(self.name)

    @cached_property
    def spec(self) -> GatewaySpec:
        """What was asked for, completed by what is there already, completed by the defaults."""
        container = self.container() or self.predecessor()
        port = self._port(container, "port", self.profile.api_port, ())
        return GatewaySpec(
            name=self.name,
            image=self._image(container),
            port=port,
            gateway_port=self._port(container, "gateway_port", self.profile.gateway_port, (port,)),
            listen=self._listen(container),
            api_names=self._api_names(container),
            gpus=self._gpus(container),
        )

    def choose_other_ports(self, keys: Iterable[str]) -> None:
        """Free ports in the place of those under these settings, from now on."""
        spec = self.spec
        taken = {spec.port, spec.gateway_port}
        for key in keys:
            port = self.place.free_port(reserved_ports(self.engine) | taken)
            taken.add(port)
            spec = msgspec.structs.replace(spec, **{key: port})
        self.spec = spec

    def container(self) -> ContainerView | None:
        """The gateway's container as it is now; refuses one of the same name that is not ours."""
        found = find_container(self.engine, self.object)
        if found is not None:
            self.refuse_foreign("container", found.labels)
        return found

    @property
    def before(self) -> str:
        """The name under which an upgrade puts the old container aside: no gateway's container has it."""
        return f"before-of-{self.object}"

    def predecessor(self) -> ContainerView | None:
        """The old container that an upgrade has put aside: there only while that upgrade is under way.

        Earlier versions put it aside as `holdfast-NAME-before`, which is what another gateway may be called.
        """
        for name in (self.before, f"{self.object}-before"):
            found = find_container(self.engine, name)
            if found is not None and found.labels.get(labels.GATEWAY) == self.name:
                return found
        return None

    def refuse_foreign(self, kind: str, found: dict[str, str]) -> None:
        """Stop when something has our name and not our label."""
        if found.get(labels.GATEWAY) != self.name:
            raise ForeignObjectError(
                f"there is a {kind} {self.object} that holdfast did not make",
                hint=f"Rename or remove that {kind}, or choose another name for the gateway.",
            )

    @property
    def replaces(self) -> bool:
        """Whether an old container is taken away first, whatever it is like."""
        return self.asked.recreate or self.asked.wipe

    @property
    def stop_seconds(self) -> int:
        """How long the node may take to stop by itself; the engine counts whole seconds."""
        return math.ceil(self.settings.timeouts.stop)

    @property
    def server(self) -> str:
        """Kubernetes as it is reached from here."""
        return url_of(*self.place.address(self.spec.port, self.spec.listen))

    @property
    def gateway_api(self) -> str:
        """The gateway's own API as it is reached from here."""
        return url_of(*self.place.address(self.spec.gateway_port, self.spec.listen))

    def _image(self, container: ContainerView | None) -> str:
        if self.settings.image is not None:
            return self.settings.image
        if container is not None:
            return container.image
        return self.remembered.image if self.remembered is not None else DEFAULT_IMAGE

    def _listen(self, container: ContainerView | None) -> str:
        if self.resolved.is_given("listen"):
            return self.settings.listen
        published = self._published(container, self.profile.api_port)
        if published is not None:
            return published[0] or LOOPBACK
        return self.remembered.listen if self.remembered is not None else self.settings.listen

    def _api_names(self, container: ContainerView | None) -> tuple[str, ...]:
        if self.resolved.is_given("api_names"):
            return self.settings.api_names
        if container is not None:
            names = container.environment.get(self.profile.sans_variable, "")
            published = self._published(container, self.profile.api_port)
            listens = published[0] if published is not None else ""  # put there beside the names asked for
            return tuple(name for name in names.split(",") if name and name != listens)
        return self.remembered.api_names if self.remembered is not None else ()

    def _gpus(self, container: ContainerView | None) -> tuple[str, ...]:
        if self.resolved.is_given("gpus"):
            return self.settings.gpus
        if container is not None:
            return container.gpus
        return self.remembered.gpus if self.remembered is not None else ()

    def _port(self, container: ContainerView | None, key: str, inside: int, others: tuple[int, ...]) -> int:
        """The port that was named; else the one it has, unless `auto` was said and another program has it."""
        asked = getattr(self.settings, key)
        if asked != "auto":
            return int(asked)
        before = self._port_before(container, key, inside)
        stolen = self.resolved.is_given(key) and not self._holds(container)
        if not before or (stolen and self.place.is_taken(before)):
            return self.place.free_port(reserved_ports(self.engine) | set(others))
        return before

    def _port_before(self, container: ContainerView | None, key: str, inside: int) -> int | None:
        published = self._published(container, inside)
        if published is not None:
            return published[1]
        return getattr(self.remembered, key) if self.remembered is not None else None

    def _published(self, container: ContainerView | None, inside: int) -> tuple[str, int] | None:
        return container.ports.get(f"{inside}/tcp") if container is not None else None

    def _holds(self, container: ContainerView | None) -> bool:
        """Whether it is the gateway itself that listens on its port."""
        return container is not None and container.running
