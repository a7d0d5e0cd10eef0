"""What a node's container is made of: pure functions from spec and profile to the engine's own terms.

Least privilege that works: every capability by name, none of them able to load modules, set clocks or
raise limits; a cgroup namespace, network and volume of its own; nothing published beyond loopback.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any

import msgspec

from holdfast.containers import labels
from holdfast.containers.gpus import device_requests
from holdfast.errors import EngineUnfitError
from holdfast.gateway.identity import node_name, object_name
from holdfast.gateway.spec import LOOPBACK, met_at

if TYPE_CHECKING:
    from holdfast.containers.engine import EngineFacts
    from holdfast.gateway.profile import NodeProfile
    from holdfast.gateway.spec import GatewaySpec

STOP_SECONDS = 30
"""How long a node may take when the engine stops it by itself, at a shutdown of its host; it needs about
two. A stop by command has a setting."""

MEANT_TO_RUN, STOPPED_ON_PURPOSE = "always", "no"
"""Restart policies. An engine that crashed ends what it finds alive in the way of a stop, so `unless-stopped`
would take its own crash for the user's wish."""


def check_engine(facts: EngineFacts) -> None:
    """Refuse an engine that cannot run a node, and say why."""
    if facts.rootless:
        raise EngineUnfitError(
            "the container engine runs rootless, and a node needs real mounts and network rules",
            hint="Use an engine that runs as root (DOCKER_HOST=unix:///var/run/docker.sock).",
        )
    if facts.user_namespaces:
        raise EngineUnfitError(
            "the container engine remaps users (userns-remap), which a node's mounts do not survive",
            hint="Switch userns-remap off in the engine's daemon.json, or use another engine.",
        )


def container_config(spec: GatewaySpec, profile: NodeProfile) -> dict[str, Any]:
    """The part of a container that is about the program inside."""
    fingerprint = settings_fingerprint(spec, profile)
    return {
        **_program(spec, profile),
        "Labels": {labels.GATEWAY: spec.name, labels.SETTINGS: fingerprint},
    }


def _program(spec: GatewaySpec, profile: NodeProfile) -> dict[str, Any]:
    name = node_name(spec.name)
    variables = {profile.node_name_variable: name, profile.sans_variable: ",".join(_api_names(spec))}
    return {
        "Hostname": name,
        "Env": [f"{key}={value}" for key, value in variables.items() if value],
        "ExposedPorts": {f"{profile.api_port}/tcp": {}, f"{profile.gateway_port}/tcp": {}},
        "StopTimeout": STOP_SECONDS,
        **({"Cmd": list(profile.command)} if profile.command else {}),
    }


def _api_names(spec: GatewaySpec) -> list[str]:
    """What was asked for, and the address it is met at where that is not the node's own loopback."""
    host = met_at(spec.listen)
    if host == LOOPBACK:
        return list(spec.api_names)
    return [*(name for name in spec.api_names if name != host), host]


def host_config(spec: GatewaySpec, profile: NodeProfile) -> dict[str, Any]:
    """The part of a container that is about the engine's host."""
    published = {profile.api_port: spec.port, profile.gateway_port: spec.gateway_port}
    return {
        "CapDrop": ["ALL"],
        "CapAdd": list(profile.capabilities),
        "SecurityOpt": ["seccomp=unconfined", "apparmor=unconfined", "label=disable"],
        "MaskedPaths": [],
        "ReadonlyPaths": [],
        "CgroupnsMode": "private",
        "Tmpfs": dict(profile.tmpfs),
        "Devices": [
            {"PathOnHost": device, "PathInContainer": device, "CgroupPermissions": "rwm"}
            for device in profile.devices
        ],
        "Mounts": [{"Type": "volume", "Source": object_name(spec.name), "Target": profile.state_path}],
        "NetworkMode": object_name(spec.name),
        "PortBindings": {
            f"{inside}/tcp": [{"HostIp": spec.listen, "HostPort": str(outside)}]
            for inside, outside in published.items()
        },
        "RestartPolicy": {"Name": MEANT_TO_RUN},
        "LogConfig": {"Type": "json-file", "Config": {"max-size": "10m", "max-file": "2"}},
        # Without GPUs not even the word: who has none has the fingerprint that it always had.
        **({"DeviceRequests": device_requests(spec.gpus)} if spec.gpus else {}),
    }


def networking_config(spec: GatewaySpec) -> dict[str, Any]:
    """The gateway's own network, and nothing else."""
    return {"EndpointsConfig": {object_name(spec.name): {}}}


def settings_fingerprint(spec: GatewaySpec, profile: NodeProfile) -> str:
    """Changes when a container made with other settings would have to be made anew, and only then.

    The restart policy can be changed on a container that is there: it counts as what it was at first.
    """
    host = {**host_config(spec, profile), "RestartPolicy": {"Name": "unless-stopped"}}
    parts = (_program(spec, profile), host)
    return hashlib.sha256(msgspec.json.encode(parts, order="deterministic")).hexdigest()[:16]
