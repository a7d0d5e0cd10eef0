"""The spec of a gateway, the names of its objects, and the contract with its node image.

A node keeps its name as long as its gateway exists, even if its container is recreated: local volumes are
pinned to the node name, so a node with another name would lose the files of its sandboxes.

Steps take every path in the node from the contract, so another node image needs only another `NodeContract`.
"""

from __future__ import annotations

import hashlib
import re

import msgspec

from holdfast import __version__
from holdfast.errors import InvalidGatewayNameError

# The image of all workloads of a gateway.
GATEWAY_IMAGE = f"holdfast/gateway:{__version__}"
NAME_PREFIX = "holdfast-"
# The node name is also a hostname and a DNS label, which have this limit.
MAX_NODE_NAME_LENGTH = 63

_FALLBACK_LABEL = "gateway"
_HASH_LENGTH = 8
_VALID_NAME = re.compile(r"[A-Za-z0-9_.-]+")
_MAX_NAME_LENGTH = 200


def check_name(name: str) -> str:
    """Return the name if it is valid in container and file names, else raise InvalidGatewayNameError."""
    if not name:
        raise InvalidGatewayNameError("gateway name: empty", hint="Choose a name such as dev.")
    if len(name) > _MAX_NAME_LENGTH:
        raise InvalidGatewayNameError(
            f"gateway name: {len(name)} characters, more than {_MAX_NAME_LENGTH}",
            hint="Choose a shorter name.",
        )
    # The name is part of file paths and arguments: `..` would leave the directory, and a leading `-` would be
    # read as an option.
    if not _VALID_NAME.fullmatch(name) or name.startswith("-") or not name.strip("-."):
        raise InvalidGatewayNameError(
            f"gateway name {name!r}: invalid",
            hint="Use letters, digits, _ . and -, but no - as the first character.",
        )
    return name


def node_name(name: str) -> str:
    """The Kubernetes node name of a gateway: a DNS label, always the same for the same gateway."""
    label = re.sub(r"[^a-z0-9]+", "-", name.lower().encode("ascii", "replace").decode()).strip("-")
    label = label or _FALLBACK_LABEL
    room = MAX_NODE_NAME_LENGTH - len(NAME_PREFIX)
    if len(label) > room:
        digest = hashlib.sha256(name.encode()).hexdigest()[:_HASH_LENGTH]
        label = f"{label[: room - _HASH_LENGTH - 1].rstrip('-')}-{digest}"
    return NAME_PREFIX + label


def object_name(name: str) -> str:
    """The name of the gateway's container, volume and network on the engine."""
    return NAME_PREFIX + name


def kubeconfig_context(name: str) -> str:
    """The gateway's context in a kubeconfig."""
    return NAME_PREFIX + name


LOOPBACK = "127.0.0.1"


_UNSPECIFIED_ADDRESSES = ("", "0.0.0.0", "::")  # noqa: S104 (compared with, never listened on)


def connect_address(listen: str) -> str:
    """The address to connect to on the host itself: loopback, unless the port listens on another one."""
    return LOOPBACK if listen in _UNSPECIFIED_ADDRESSES else listen


def https_url(host: str, port: int) -> str:
    """The URL of an HTTPS server."""
    return f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}"


class GatewaySpec(msgspec.Struct, frozen=True, kw_only=True):
    """A desired gateway; `port` is that of Kubernetes, `gateway_port` that of the gateway API."""

    name: str
    image: str
    port: int
    gateway_port: int
    listen: str = LOOPBACK
    api_names: tuple[str, ...] = ()
    gpus: tuple[str, ...] = ()


# The contract version that this holdfast supports (label `dev.holdfast.contract`).
CONTRACT_VERSION = "1"


class NodeContract(msgspec.Struct, frozen=True, kw_only=True):
    """What a node image provides, and what it needs; the defaults are those of holdfast's own image."""

    state_path: str = "/var/lib/holdfast"
    kubeconfig_path: str = "/var/lib/holdfast/kubeconfig/admin.yaml"
    api_port: int = 6443
    gateway_port: int = 8443
    node_name_variable: str = "HOLDFAST_NODE_NAME"
    sans_variable: str = "HOLDFAST_API_SANS"
    wait_command: tuple[str, ...] = ("holdfast-node", "wait", "--for")
    """Waits for `node` (the API server runs, the node is registered) or `ready` (all components)."""
    registries_path: str = "/var/lib/holdfast/registries"
    """Directory of containerd's host files; only holdfast writes to it."""
    logins_path: str = "/var/lib/holdfast/kubelet/config.json"
    """The kubelet's file of registry logins, below the state path."""
    log_directory: str = "/var/lib/holdfast/logs"
    components: tuple[str, ...] = (
        "etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "containerd", "kubelet",
        "kube-proxy",
    )  # fmt: skip
    capabilities: tuple[str, ...] = (
        "AUDIT_WRITE", "CHOWN", "DAC_OVERRIDE", "FOWNER", "FSETID", "KILL", "MKNOD", "NET_ADMIN",
        "NET_BIND_SERVICE", "NET_RAW", "SETFCAP", "SETGID", "SETPCAP", "SETUID", "SYS_ADMIN", "SYS_CHROOT",
        "SYS_PTRACE", "SYSLOG",
    )  # fmt: skip
    devices: tuple[str, ...] = ("/dev/kmsg",)
    tmpfs: tuple[tuple[str, str], ...] = (
        ("/run", "rw,nosuid,nodev,exec,mode=755"),
        ("/tmp", "rw,nosuid,nodev,exec,mode=1777"),  # noqa: S108 (inside the container)
    )
    datastore: str = "etcd"
    """The datastore's directory below the state path; an upgrade copies it."""


HOLDFAST_NODE = NodeContract()
