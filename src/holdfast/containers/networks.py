"""Networks and volumes of an engine: looked up, made and removed by name; removing what is gone is done.

Not here: attaching containers (containers.py).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from holdfast.containers.labels import GATEWAY
from holdfast.containers.translation import translated

if TYPE_CHECKING:
    from holdfast.containers.engine import Engine


class NetworkView(msgspec.Struct, frozen=True, kw_only=True):
    """A network as the engine shows it."""

    id: str
    name: str
    labels: dict[str, str]


class VolumeView(msgspec.Struct, frozen=True, kw_only=True):
    """A volume as the engine shows it."""

    name: str
    labels: dict[str, str]
    mountpoint: str


def find_network(engine: Engine, name: str) -> NetworkView | None:
    """The network of exactly this name, or None. (The engine itself matches parts of names.)"""
    with translated(f"looking for network {name}", engine.address):
        for network in engine.client.networks(names=[name]):
            if network["Name"] == name:
                return NetworkView(id=network["Id"], name=name, labels=network.get("Labels") or {})
    return None


def create_network(engine: Engine, name: str, *, gateway: str) -> str:
    """Make a bridge network that belongs to a gateway; return its id."""
    with translated(f"making network {name}", engine.address):
        made = engine.client.create_network(
            name, driver="bridge", check_duplicate=True, labels={GATEWAY: gateway}
        )
    return str(made["Id"])


def remove_network(engine: Engine, name: str) -> bool:
    """Remove a network; False when there was none."""
    found = find_network(engine, name)
    if found is None:
        return False
    import docker.errors

    with translated(f"removing network {name}", engine.address):
        try:
            engine.client.remove_network(found.id)
        except docker.errors.NotFound:
            return False
    return True


def find_volume(engine: Engine, name: str) -> VolumeView | None:
    """The volume of this name, or None."""
    with translated(f"looking for volume {name}", engine.address):
        listed = engine.client.volumes(filters={"name": name})["Volumes"] or []
    for volume in listed:
        if volume["Name"] == name:
            return VolumeView(
                name=name, labels=volume.get("Labels") or {}, mountpoint=volume.get("Mountpoint", "")
            )
    return None


def create_volume(engine: Engine, name: str, *, gateway: str) -> None:
    """Make a volume that belongs to a gateway; the engine keeps one that is already there."""
    with translated(f"making volume {name}", engine.address):
        engine.client.create_volume(name, labels={GATEWAY: gateway})


def remove_volume(engine: Engine, name: str) -> bool:
    """Remove a volume and all data on it; False when there was none."""
    if find_volume(engine, name) is None:
        return False
    import docker.errors

    with translated(f"removing volume {name}", engine.address):
        try:
            engine.client.remove_volume(name)
        except docker.errors.NotFound:
            return False
    return True
