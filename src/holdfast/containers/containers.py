"""Create, inspect, start, stop and remove containers.

Operations are idempotent: an object that already exists, runs or is gone is not an error.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

import msgspec

from holdfast.api import parse_timestamp
from holdfast.containers.errors import call_if_found, change_if_found, translate_errors
from holdfast.containers.exec import split_lines

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from holdfast.containers.client import ContainerEngine

# Every GPU of the host, instead of device IDs.
ALL_GPUS = "all"
_GPU_CAPABILITY = "gpu"
_ALL_DEVICES = -1


class ContainerView(msgspec.Struct, frozen=True, kw_only=True):
    """The properties of a container that holdfast reads."""

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
    restart_policy: str
    gpus: tuple[str, ...]

    @property
    def is_running(self) -> bool:
        return self.state in ("running", "restarting", "paused")

    @property
    def started_at_epoch(self) -> int | None:
        """The time of the last start in whole seconds since the epoch; None if it never started."""
        return None if self.never_started else int(parse_timestamp(self.started_at).timestamp())

    @property
    def never_started(self) -> bool:
        """Whether the container was only created; the engine then reports year 1 as the start time."""
        return self.state == "created" or self.started_at.startswith("0001-")


def find_container(engine: ContainerEngine, name: str) -> ContainerView | None:
    """Return the container with this name or ID, or None."""
    raw = call_if_found(engine, f"inspecting container {name}", lambda: engine.client.inspect_container(name))
    return _parse_container(raw) if raw is not None else None


def create_container(
    engine: ContainerEngine,
    name: str,
    *,
    image: str,
    config: Mapping[str, Any],
    host_config: Mapping[str, Any],
    networking_config: Mapping[str, Any],
) -> str:
    """Create a container from the Docker API's own structures; return its ID."""
    body = {**config, "Image": image, "HostConfig": host_config, "NetworkingConfig": networking_config}
    with translate_errors(f"creating container {name}", engine.address):
        return str(engine.client.create_container_from_config(body, name)["Id"])


def start_container(engine: ContainerEngine, name: str) -> None:
    """Start a container; a running one stays unchanged."""
    with translate_errors(f"starting container {name}", engine.address):
        engine.client.start(name)


def set_restart_policy(engine: ContainerEngine, name: str, policy: str) -> None:
    """Set whether the engine restarts the container (`always`) or not (`no`)."""
    with translate_errors(f"setting the restart policy of {name}", engine.address):
        engine.client.update_container(name, restart_policy={"Name": policy})


def unpause_container(engine: ContainerEngine, name: str) -> None:
    """Resume a paused container."""
    with translate_errors(f"unpausing container {name}", engine.address):
        engine.client.unpause(name)


def stop_container(engine: ContainerEngine, name: str, *, grace_seconds: int) -> bool:
    """Stop a container and wait for its exit; return False if it does not exist."""
    return change_if_found(
        engine, f"stopping container {name}", lambda: engine.client.stop(name, timeout=grace_seconds)
    )


def rename_container(engine: ContainerEngine, name: str, new_name: str) -> None:
    """Rename a container."""
    with translate_errors(f"renaming container {name} to {new_name}", engine.address):
        engine.client.rename(name, new_name)


def remove_container(engine: ContainerEngine, name: str) -> bool:
    """Remove a container, running or not, and keep its volumes; return False if it does not exist."""
    import docker.errors

    def remove() -> None:
        try:
            engine.client.remove_container(name, force=True)
        except docker.errors.APIError as error:
            # 409: another request is removing the container. Callers may reuse the name, so wait for the end.
            if "is already in progress" not in str(error):
                raise
            with suppress(docker.errors.NotFound):
                engine.client.wait(name, condition="removed", timeout=engine.client.timeout)

    return change_if_found(engine, f"removing container {name}", remove)


def wait_for_exit(engine: ContainerEngine, name: str, *, timeout: float) -> bool:
    """Wait until a container exits; return False if it still runs after `timeout` seconds."""
    import docker.errors
    import requests

    with translate_errors(f"waiting for the exit of {name}", engine.address):
        try:
            engine.client.wait(name, timeout=timeout)
        except docker.errors.NotFound:
            return True
        except requests.exceptions.ReadTimeout:
            return False
        except requests.exceptions.ConnectionError as error:
            if "timed out" in str(error).lower():  # a read timeout of a stream, as the SDK reports it
                return False
            raise
    return True


def container_logs(
    engine: ContainerEngine, name: str, *, tail: int | None = None, since: int | None = None
) -> str:
    """Return the output of a container.

    Args:
        engine: the container engine.
        name: the container.
        tail: only this number of lines from the end.
        since: only the output after this time, in seconds since the epoch.
    """
    with translate_errors(f"reading the log of {name}", engine.address):
        raw = engine.client.logs(name, stdout=True, stderr=True, tail=_tail(tail), since=since)
    return bytes(raw).decode(errors="replace")


def follow_logs(engine: ContainerEngine, name: str, *, tail: int | None = None) -> Iterator[str]:
    """Yield the lines of a container's output until it exits, starting with the last `tail` lines."""
    with translate_errors(f"following the log of {name}", engine.address):
        yield from split_lines(
            engine.client.logs(name, stdout=True, stderr=True, stream=True, follow=True, tail=_tail(tail))
        )


def _tail(lines: int | None) -> int | str:
    return "all" if lines is None else lines


def list_containers(engine: ContainerEngine, *, label: str) -> list[dict[str, Any]]:
    """Return all containers, running or not, with a label (`key` or `key=value`)."""
    with translate_errors("listing containers", engine.address):
        return list(engine.client.containers(all=True, filters={"label": label}))


def reattach_network(
    engine: ContainerEngine, name: str, network: str, *, stale_networks: Mapping[str, str]
) -> None:
    """Detach a container from stale networks and attach it to one: a network was recreated by name."""
    import docker.errors

    with translate_errors(f"attaching {name} to network {network}", engine.address):
        for stale in stale_networks:
            try:
                engine.client.disconnect_container_from_network(name, stale, force=True)
            except docker.errors.APIError as error:
                # The network is gone: the engine may not find it, or not find the container's endpoint in it.
                if error.status_code not in (403, 404, 500):
                    raise
        engine.client.connect_container_to_network(name, network)


def device_requests(gpus: Sequence[str]) -> list[dict[str, Any]]:
    """Return the Docker device requests for GPUs; the engine chooses the driver."""
    if not gpus:
        return []
    selection = {"Count": _ALL_DEVICES} if ALL_GPUS in gpus else {"DeviceIDs": sorted(gpus)}
    return [{"Driver": "", **selection, "Capabilities": [[_GPU_CAPABILITY]]}]


def requested_gpus(requests: Iterable[Mapping[str, Any]]) -> tuple[str, ...]:
    """Return the GPUs in the device requests of a container."""
    ids: set[str] = set()
    for request in requests:
        if any(_GPU_CAPABILITY in capabilities for capabilities in request.get("Capabilities") or ()):
            ids.update(request.get("DeviceIDs") or ())
            if request.get("Count") == _ALL_DEVICES:
                return (ALL_GPUS,)
    return tuple(sorted(ids))


def _parse_container(raw: Mapping[str, Any]) -> ContainerView:
    state, config, host_config = raw["State"], raw["Config"], raw["HostConfig"]
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
        # From the configuration: NetworkSettings.Ports is empty while the container is stopped.
        ports=_published_ports(host_config.get("PortBindings") or {}),
        networks={name: str(endpoint.get("NetworkID", "")) for name, endpoint in networks.items()},
        restart_policy=str((host_config.get("RestartPolicy") or {}).get("Name") or "no"),
        gpus=requested_gpus(host_config.get("DeviceRequests") or ()),
    )


def _published_ports(bindings: Mapping[str, Any]) -> dict[str, tuple[str, int]]:
    return {
        port: (published[0].get("HostIp") or "", int(published[0]["HostPort"]))
        for port, published in bindings.items()
        if published and published[0].get("HostPort")
    }
