"""Containers of an engine: seen, made, started, stopped, removed; what is done already counts as done.

Not here: commands inside them (commands.py) and what a node's container is made of (the gateway floor).
"""

from __future__ import annotations

import datetime as dt
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import msgspec

from holdfast.containers.gpus import gpus_of
from holdfast.containers.translation import translated

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from holdfast.containers.engine import Engine


class ContainerView(msgspec.Struct, frozen=True, kw_only=True):
    """A container as the engine shows it, as far as holdfast reads it."""

    id: str
    name: str
    image_id: str
    image: str
    state: str
    exit_code: int
    started_at: str
    health: str
    hostname: str
    labels: dict[str, str]
    environment: dict[str, str]
    ports: dict[str, tuple[str, int]]
    networks: dict[str, str]
    restart: str
    gpus: tuple[str, ...]

    @property
    def running(self) -> bool:
        return self.state in ("running", "restarting", "paused")

    @property
    def started_second(self) -> int | None:
        """When it was started the last time, in whole seconds of the epoch."""
        if self.never_ran:
            return None
        return int(dt.datetime.fromisoformat(f"{self.started_at[:19]}+00:00").timestamp())

    @property
    def never_ran(self) -> bool:
        """Whether it was only made so far: the engine shows the beginning of time as its start."""
        return self.state == "created" or self.started_at.startswith("0001-")


def find_container(engine: Engine, name: str) -> ContainerView | None:
    """The container of this name, or None."""
    import docker.errors

    with translated(f"looking for container {name}", engine.address):
        try:
            return _view(engine.client.inspect_container(name))
        except docker.errors.NotFound:
            return None


def create_container(
    engine: Engine,
    name: str,
    *,
    image: str,
    config: Mapping[str, Any],
    host_config: Mapping[str, Any],
    networking: Mapping[str, Any],
) -> str:
    """Make a container from the engine's own terms; return its id."""
    body = {**config, "Image": image, "HostConfig": host_config, "NetworkingConfig": networking}
    with translated(f"making container {name}", engine.address):
        made = engine.client.create_container_from_config(body, name)
    return str(made["Id"])


def start_container(engine: Engine, name: str) -> None:
    """Start a container; one that runs is left alone by the engine."""
    with translated(f"starting container {name}", engine.address):
        engine.client.start(name)


def set_restart(engine: Engine, name: str, policy: str) -> None:
    """Say whether the engine brings a container back by itself (`always`) or leaves it as it is (`no`)."""
    with translated(f"setting the restart policy of {name}", engine.address):
        engine.client.update_container(name, restart_policy={"Name": policy})


def unpause_container(engine: Engine, name: str) -> None:
    """Let a paused container go on."""
    with translated(f"unpausing container {name}", engine.address):
        engine.client.unpause(name)


def stop_container(engine: Engine, name: str, *, grace_seconds: int) -> bool:
    """Ask a container to stop and wait for it; False when there was none."""
    import docker.errors

    with translated(f"stopping container {name}", engine.address):
        try:
            engine.client.stop(name, timeout=grace_seconds)
        except docker.errors.NotFound:
            return False
    return True


def rename_container(engine: Engine, name: str, new_name: str) -> None:
    """Give a container another name; it stays what it is."""
    with translated(f"renaming container {name} to {new_name}", engine.address):
        engine.client.rename(name, new_name)


def remove_container(engine: Engine, name: str) -> bool:
    """Remove a container that may still run; its named volumes stay. False when there was none."""
    import docker.errors

    with translated(f"removing container {name}", engine.address):
        try:
            engine.client.remove_container(name, force=True)
        except docker.errors.NotFound:
            return False
        except docker.errors.APIError as error:
            if "is already in progress" not in str(error):
                raise
            with suppress(docker.errors.NotFound):
                engine.client.wait(name, condition="removed", timeout=engine.client.timeout)
    return True


def ends_within(engine: Engine, name: str, *, within: float) -> bool:
    """Whether a container is over, or is in so many seconds: the engine tells, it is not asked in a loop."""
    import docker.errors
    import requests

    with translated(f"waiting for the end of {name}", engine.address):
        try:
            engine.client.wait(name, timeout=within)
        except docker.errors.NotFound:
            return True
        except requests.exceptions.ReadTimeout:
            return False
        except requests.exceptions.ConnectionError as error:
            if "timed out" in str(error).lower():  # what the SDK's streams make of a time that is over
                return False
            raise
    return True


def container_logs(engine: Engine, name: str, *, tail: int | None = None, since: int | None = None) -> str:
    """What the container has printed so far (since a second of the epoch), the newest `tail` lines of it."""
    with translated(f"reading the log of {name}", engine.address):
        raw = engine.client.logs(
            name, stdout=True, stderr=True, tail="all" if tail is None else tail, since=since
        )
    return bytes(raw).decode(errors="replace")


def follow_logs(engine: Engine, name: str, *, tail: int | None = None) -> Iterator[bytes]:
    """What the container prints, as it prints it, until it ends."""
    with translated(f"following the log of {name}", engine.address):
        yield from engine.client.logs(
            name, stdout=True, stderr=True, stream=True, follow=True, tail="all" if tail is None else tail
        )


def list_containers(engine: Engine, *, label: str) -> list[dict[str, Any]]:
    """All containers, running or not, that carry a label (`key` or `key=value`)."""
    with translated("listing containers", engine.address):
        found: list[dict[str, Any]] = engine.client.containers(all=True, filters={"label": label})
    return found


def reattach(engine: Engine, name: str, network: str, *, old_networks: Mapping[str, str]) -> None:
    """Leave networks that went stale and join one again; used when a network was remade under its name."""
    import docker.errors

    with translated(f"attaching {name} to network {network}", engine.address):
        for old in old_networks:
            try:
                engine.client.disconnect_container_from_network(name, old, force=True)
            except docker.errors.APIError as error:
                if error.status_code not in (403, 404, 500):
                    raise
        engine.client.connect_container_to_network(name, network)


def _view(raw: Mapping[str, Any]) -> ContainerView:
    state, config = raw["State"], raw["Config"]
    networks = raw["NetworkSettings"].get("Networks") or {}
    return ContainerView(
        id=raw["Id"],
        name=raw["Name"].lstrip("/"),
        image_id=raw["Image"],
        image=config["Image"],
        state=state["Status"],
        exit_code=int(state.get("ExitCode", 0)),
        started_at=str(state.get("StartedAt", "")),
        health=str((state.get("Health") or {}).get("Status", "")),
        hostname=str(config.get("Hostname", "")),
        labels=config.get("Labels") or {},
        environment=dict(item.partition("=")[::2] for item in config.get("Env") or ()),
        ports=_published(raw["HostConfig"].get("PortBindings") or {}),
        networks={name: str(end.get("NetworkID", "")) for name, end in networks.items()},
        restart=str((raw["HostConfig"].get("RestartPolicy") or {}).get("Name") or "no"),
        gpus=gpus_of(raw["HostConfig"].get("DeviceRequests") or ()),
    )


def _published(bindings: Mapping[str, Any]) -> dict[str, tuple[str, int]]:
    published = {}
    for port, places in bindings.items():
        if places and places[0].get("HostPort"):
            published[port] = (places[0].get("HostIp") or "", int(places[0]["HostPort"]))
    return published
