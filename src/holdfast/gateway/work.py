"""What the steps of one gateway command share: the engine, the spec, what was asked for.

Everything is found out on first use and then kept, so that a step asks only for what it needs.
Not here: effects.
"""

from __future__ import annotations

from functools import cached_property

import msgspec

from holdfast import __version__
from holdfast.containers import labels
from holdfast.containers.containers import ContainerView, find_container
from holdfast.containers.engine import Engine, connect
from holdfast.containers.images import check_reference
from holdfast.containers.ports import free_port, is_taken, reserved_ports
from holdfast.errors import BadSettingError, ForeignObjectError
from holdfast.gateway.identity import object_name
from holdfast.gateway.profile import HOLDFAST, NodeProfile
from holdfast.gateway.spec import LOOPBACK, GatewayFiles, GatewaySpec, Metadata, read_metadata

DEFAULT_IMAGE = f"holdfast/node:{__version__}"
_PORTS = range(1, 65536)


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """What the user said; None means "as it is, or the default". Port 0 asks for a free one."""

    image: str | None = None
    port: int | None = None
    ready_timeout: float = 120.0


class Work:
    """One gateway, while a command works on it."""

    def __init__(self, name: str, asked: Asked | None = None, profile: NodeProfile = HOLDFAST) -> None:
        self.name = name
        self.asked = asked or Asked()
        self.profile = profile
        self.files = GatewayFiles(name)
        self.object = object_name(name)

    @cached_property
    def engine(self) -> Engine:
        return connect()

    @cached_property
    def remembered(self) -> Metadata | None:
        return read_metadata(self.name)

    @cached_property
    def spec(self) -> GatewaySpec:
        """What was asked for, completed by what is there already, completed by the defaults."""
        container = self.container()
        return GatewaySpec(name=self.name, image=self._image(container), port=self._port(container))

    def container(self) -> ContainerView | None:
        """The gateway's container as it is now; refuses one of the same name that is not ours."""
        found = find_container(self.engine, self.object)
        if found is not None:
            self.refuse_foreign("container", found.labels)
        return found

    def refuse_foreign(self, kind: str, found: dict[str, str]) -> None:
        """Stop when something has our name and not our label."""
        if found.get(labels.GATEWAY) != self.name:
            raise ForeignObjectError(
                f"there is a {kind} {self.object} that holdfast did not make",
                hint=f"Rename or remove that {kind}, or choose another name for the gateway.",
            )

    def _image(self, container: ContainerView | None) -> str:
        if self.asked.image is not None:
            return check_reference(self.asked.image)
        if container is not None:
            return container.image
        return self.remembered.image if self.remembered is not None else DEFAULT_IMAGE

    def _port(self, container: ContainerView | None) -> int:
        asked = self.asked.port
        if asked:
            if asked not in _PORTS:
                raise BadSettingError(f"{asked} is no port", hint="Ports go from 1 to 65535, or `auto`.")
            return asked
        before = self._port_before(container)
        if before is None or (asked == 0 and not self._holds(container) and is_taken(before)):
            return free_port(reserved=reserved_ports(self.engine))
        return before

    def _port_before(self, container: ContainerView | None) -> int | None:
        published = container.ports.get(f"{self.profile.api_port}/tcp") if container is not None else None
        if published is not None:
            return published[1]
        return self.remembered.port if self.remembered is not None else None

    def _holds(self, container: ContainerView | None) -> bool:
        """Whether it is the gateway itself that listens on its port."""
        return container is not None and container.running

    @property
    def server(self) -> str:
        return f"https://{LOOPBACK}:{self.spec.port}"
