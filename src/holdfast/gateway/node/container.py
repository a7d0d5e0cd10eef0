"""The node's network and container: their configuration, and the steps that create and repair them.

Least privilege that works: every capability is listed; none can load modules, set clocks or raise limits. The
node has its own cgroup namespace, network and volume, and publishes ports on loopback only by default.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any

import msgspec

from holdfast.containers import (
    ContainerView,
    create_container,
    create_network,
    device_requests,
    find_image,
    find_network,
    labels,
    reattach_network,
    remove_container,
    stop_container,
)
from holdfast.errors import ContainerEngineError, ContainerEngineUnsupportedError, ImageIncompatibleError
from holdfast.gateway.base_steps import GatewayStep
from holdfast.gateway.spec import LOOPBACK, connect_address, node_name, object_name
from holdfast.gateway.versions import container_kubernetes_version, target_kubernetes_version
from holdfast.workflow import ProbeResult, absent, done, partial

if TYPE_CHECKING:
    from holdfast.containers import EngineFacts, NetworkView
    from holdfast.gateway.context import GatewayContext
    from holdfast.gateway.spec import GatewaySpec, NodeContract
    from holdfast.workflow import StepContext


# Grace period when the engine stops the container at a shutdown of its host; a node needs about 2 s.
SHUTDOWN_GRACE_SECONDS = 30

# Restart policies. Not `unless-stopped`: after its own crash an engine stops running containers, and would
# take that for the user's stop.
RESTART_ALWAYS = "always"
RESTART_NEVER = "no"


def check_engine(facts: EngineFacts) -> None:
    """Raise ContainerEngineUnsupportedError if the engine cannot run a node."""
    if facts.is_rootless:
        raise ContainerEngineUnsupportedError(
            "container engine: runs rootless, but a node needs real mounts and network rules",
            hint="Use an engine that runs as root (DOCKER_HOST=unix:///var/run/docker.sock).",
        )
    if facts.has_user_namespaces:
        raise ContainerEngineUnsupportedError(
            "container engine: remaps users (userns-remap), which breaks the mounts of a node",
            hint="Disable userns-remap in the engine's daemon.json, or use another engine.",
        )


def container_config(spec: GatewaySpec, contract: NodeContract) -> dict[str, Any]:
    """The part of the configuration that concerns the process."""
    fingerprint = settings_fingerprint(spec, contract)
    return {
        **_process_config(spec, contract),
        "Labels": {labels.GATEWAY: spec.name, labels.SETTINGS: fingerprint},
    }


def _process_config(spec: GatewaySpec, contract: NodeContract) -> dict[str, Any]:
    name = node_name(spec.name)
    variables = {contract.node_name_variable: name, contract.sans_variable: ",".join(_api_server_names(spec))}
    return {
        "Hostname": name,
        "Env": [f"{key}={value}" for key, value in variables.items() if value],
        "ExposedPorts": {f"{contract.api_port}/tcp": {}, f"{contract.gateway_port}/tcp": {}},
        "StopTimeout": SHUTDOWN_GRACE_SECONDS,
    }


def _api_server_names(spec: GatewaySpec) -> list[str]:
    """The configured names, and the address that clients connect to unless it is loopback."""
    host = connect_address(spec.listen)
    if host == LOOPBACK:
        return list(spec.api_names)
    return [*(name for name in spec.api_names if name != host), host]


def host_config(spec: GatewaySpec, contract: NodeContract) -> dict[str, Any]:
    """The part of the configuration that concerns the engine's host."""
    published = {contract.api_port: spec.port, contract.gateway_port: spec.gateway_port}
    return {
        "CapDrop": ["ALL"],
        "CapAdd": list(contract.capabilities),
        # The default AppArmor profile denies the mounts of containerd, and a read-only /proc/sys denies the
        # sysctls that the node sets.
        "SecurityOpt": ["seccomp=unconfined", "apparmor=unconfined", "label=disable"],
        "MaskedPaths": [],
        "ReadonlyPaths": [],
        "CgroupnsMode": "private",
        "Tmpfs": dict(contract.tmpfs),
        "Devices": [
            {"PathOnHost": device, "PathInContainer": device, "CgroupPermissions": "rwm"}
            for device in contract.devices
        ],
        "Mounts": [{"Type": "volume", "Source": object_name(spec.name), "Target": contract.state_path}],
        "NetworkMode": object_name(spec.name),
        "PortBindings": {
            f"{inside}/tcp": [{"HostIp": spec.listen, "HostPort": str(outside)}]
            for inside, outside in published.items()
        },
        "RestartPolicy": {"Name": RESTART_ALWAYS},
        # The engine's default log driver may keep nothing to read, and errors quote the log of the node.
        "LogConfig": {"Type": "json-file", "Config": {"max-size": "10m", "max-file": "2"}},
        # Omitted without GPUs: an empty list would change the fingerprint of existing containers.
        **({"DeviceRequests": device_requests(spec.gpus)} if spec.gpus else {}),
    }


def networking_config(spec: GatewaySpec) -> dict[str, Any]:
    """Attach the container to the gateway's own network only."""
    return {"EndpointsConfig": {object_name(spec.name): {}}}


def settings_fingerprint(spec: GatewaySpec, contract: NodeContract) -> str:
    """Return a hash that changes exactly when the container must be recreated.

    The restart policy is not part of it, because it can be changed in place.
    """
    host = host_config(spec, contract)
    del host["RestartPolicy"]
    parts = (_process_config(spec, contract), host)
    return hashlib.sha256(msgspec.json.encode(parts, order="deterministic")).hexdigest()[:16]


class CheckEngine(GatewayStep):
    """Connect to the container engine and check what it supports."""

    name = "check-engine"
    title = "Container engine"
    repeat = "always"

    def run(self, ctx: StepContext) -> None:
        facts = self.gateway.engine.facts()
        check_engine(facts)
        note = f"Docker {facts.version}, cgroup v{facts.cgroup_version}"
        if not self.gateway.host.has_shared_lock:
            note += "; the lock does not exclude other machines, so run commands from one machine at a time"
        ctx.note(note)


class EnsureNetwork(GatewayStep):
    """Create a bridge network for this gateway only."""

    name = "ensure-network"
    title = "Network"
    needs = ("replace-old",)

    def probe(self, _ctx: StepContext) -> ProbeResult:
        if self.gateway.network() is None:
            return absent("no network yet")
        return done(f"{self.gateway.object_name} exists")

    def run(self, ctx: StepContext) -> None:
        # The engine would create a second network of the same name: check again after a lost response.
        if find_network(self.gateway.engine, self.gateway.object_name) is None:
            create_network(self.gateway.engine, self.gateway.object_name, gateway=self.gateway.name)
        ctx.note(self.gateway.object_name)


def create_node_container(gateway: GatewayContext, spec: GatewaySpec, image: str) -> None:
    """Create the gateway's container; an error after the container was created is not a failure."""
    try:
        create_container(
            gateway.engine,
            gateway.object_name,
            image=image,
            config=container_config(spec, gateway.contract),
            host_config=host_config(spec, gateway.contract),
            networking_config=networking_config(spec),
        )
    except ContainerEngineError:
        if gateway.container() is None:
            raise


def image_for_new_container(gateway: GatewayContext, old_image_id: str) -> str:
    """The configured image; else exactly the image of the old container, even if its tag has moved."""
    name = gateway.spec.image
    if not old_image_id or gateway.settings.image is not None:
        return name
    image = find_image(gateway.engine, name)
    return name if image is not None and image.id == old_image_id else old_image_id


class EnsureContainer(GatewayStep):
    """Create the container on the gateway's volume and network.

    A container with other settings is recreated on the same volume; one whose network was recreated is
    attached again. The data stays on the volume.
    """

    name = "ensure-container"
    title = "Container"
    needs = ("ensure-image", "ensure-network", "finish-interrupted-rollback")

    def __init__(self, gateway: GatewayContext) -> None:
        super().__init__(gateway)
        self._removed_image = ""  # for a retry of this step between removal and creation

    def probe(self, _ctx: StepContext) -> ProbeResult:
        container = self.gateway.container()
        if container is None:
            return absent("no container yet")
        if reason := recreate_reason(self.gateway, container):
            return partial(reason)
        if is_detached(container, self.gateway.network()):
            return partial("its network was recreated")
        return done(f"{container.name}, {container.state}")

    def run(self, ctx: StepContext) -> None:
        gateway = self.gateway
        container = gateway.container()  # again: the last attempt may have succeeded without an answer
        if container is not None and recreate_reason(gateway, container):
            # After a kill between removal and creation, the next run finds no container and creates it on
            # the same volume.
            ctx.progress("stopping the old container; its data stays on the volume")
            self._removed_image = container.image_id
            stop_container(gateway.engine, gateway.object_name, grace_seconds=gateway.stop_seconds)
            remove_container(gateway.engine, gateway.object_name)
            container = None
        if container is None:
            # Not tracked: the last step of `up` deletes that result, which must not run this step again.
            replaced = ctx.result("replace-old", track=False)
            old_image_id = self._removed_image or replaced.get("image", "")
            create_node_container(gateway, gateway.spec, image_for_new_container(gateway, old_image_id))
            ctx.note(gateway.object_name)
        elif is_detached(container, gateway.network()):
            # The node's processes listen on the lost address, so the node must restart.
            ctx.progress("stopping the node: its network was recreated")
            stop_container(gateway.engine, gateway.object_name, grace_seconds=gateway.stop_seconds)
            reattach_network(
                gateway.engine, gateway.object_name, gateway.object_name, stale_networks=container.networks
            )
            ctx.note("attached to its network again")


def recreate_reason(gateway: GatewayContext, container: ContainerView) -> str:
    """Why the container has to be recreated on its volume; empty if it can stay.

    Raises:
        ImageIncompatibleError: The configured image has another Kubernetes version.
    """
    # First: whatever the reason, a container with another version must never be created on the data.
    image_reason = _image_mismatch(gateway, container)
    names = (container.environment.get(gateway.contract.node_name_variable), container.hostname)
    if names != (gateway.node_name, gateway.node_name):
        return f"its node is not named {gateway.node_name}"
    if container.labels.get(labels.SETTINGS) != settings_fingerprint(gateway.spec, gateway.contract):
        return "its settings differ"
    return image_reason


def _image_mismatch(gateway: GatewayContext, container: ContainerView) -> str:
    if gateway.settings.image is None:
        return ""
    image = find_image(gateway.engine, gateway.spec.image)
    if image is None or image.id == container.image_id:
        return ""
    check_same_version(gateway, container)
    return f"its image is not {gateway.spec.image}"


def is_detached(container: ContainerView, network: NetworkView | None) -> bool:
    """Whether the container is not attached to this network of the gateway, which has the same name."""
    attached_id = container.networks.get(container.name)
    # The id is empty until the container has run: it then knows its network by name only.
    return network is None or attached_id is None or attached_id not in ("", network.id)


def check_same_version(gateway: GatewayContext, container: ContainerView) -> None:
    """Raise ImageIncompatibleError if the desired image has another Kubernetes version than the container.

    Another version may not be able to read the datastore; only an upgrade, with its snapshot, may change it.
    """
    if gateway.is_upgrade or gateway.options.wipe:
        return
    current = container_kubernetes_version(gateway, container)
    desired = target_kubernetes_version(gateway)
    if current and desired and current != desired:
        raise ImageIncompatibleError(
            f"gateway {gateway.name}: has Kubernetes {current}, but {gateway.spec.image} has {desired}",
            hint="Upgrade the gateway to change the version, or omit --image to keep it.",
        )
