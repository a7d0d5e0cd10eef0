"""The contract between holdfast and a node image: paths, commands and privileges.

Steps take every path from here, so another node image needs only another `NodeContract`.
"""

from __future__ import annotations

import msgspec

CONTRACT_VERSION = "1"
"""The contract version that this holdfast supports (label `dev.holdfast.contract`)."""


class NodeContract(msgspec.Struct, frozen=True, kw_only=True):
    """What a node image provides, and what it needs."""

    name: str
    state_path: str
    kubeconfig_path: str
    api_port: int
    gateway_port: int
    node_name_variable: str
    sans_variable: str
    wait_registered_command: tuple[str, ...]
    """Waits until the API server runs and the node is registered."""
    wait_ready_command: tuple[str, ...]
    """Waits until all components are ready."""
    kubectl: tuple[str, ...]
    registries_path: str
    """Directory of containerd's host files; only holdfast writes to it."""
    logins_path: str
    """The kubelet's file of registry logins, below the state path."""
    log_directory: str
    components: tuple[str, ...]
    capabilities: tuple[str, ...]
    devices: tuple[str, ...]
    tmpfs: dict[str, str]
    command: tuple[str, ...] = ()
    datastore: str = "etcd"
    """The datastore's directory below the state path; an upgrade copies it."""


HOLDFAST_NODE = NodeContract(
    name="holdfast",
    state_path="/var/lib/holdfast",
    kubeconfig_path="/var/lib/holdfast/kubeconfig/admin.yaml",
    api_port=6443,
    gateway_port=8443,
    node_name_variable="HOLDFAST_NODE_NAME",
    sans_variable="HOLDFAST_API_SANS",
    wait_registered_command=("holdfast-node", "wait", "--for", "node"),
    wait_ready_command=("holdfast-node", "wait", "--for", "ready"),
    kubectl=("kubectl", "--kubeconfig", "/var/lib/holdfast/kubeconfig/admin.yaml"),
    registries_path="/var/lib/holdfast/registries",
    logins_path="/var/lib/holdfast/kubelet/config.json",
    log_directory="/var/lib/holdfast/logs",
    components=(
        "etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "containerd", "kubelet",
        "kube-proxy",
    ),
    capabilities=(
        "AUDIT_WRITE", "CHOWN", "DAC_OVERRIDE", "FOWNER", "FSETID", "KILL", "MKNOD", "NET_ADMIN",
        "NET_BIND_SERVICE", "NET_RAW", "SETFCAP", "SETGID", "SETPCAP", "SETUID", "SYS_ADMIN", "SYS_CHROOT",
        "SYS_PTRACE", "SYSLOG",
    ),
    devices=("/dev/kmsg",),
    tmpfs={"/run": "rw,nosuid,nodev,exec,mode=755", "/tmp": "rw,nosuid,nodev,exec,mode=1777"},  # noqa: S108 (inside the container)
)  # fmt: skip
