"""The contract between holdfast and a node image, as data: which paths, commands and privileges it has.

Another node image is one more `NodeProfile`; no step knows a path by itself.
"""

from __future__ import annotations

import msgspec

CONTRACT = "1"
"""The version of the contract that this holdfast speaks (label `dev.holdfast.contract`)."""


class NodeProfile(msgspec.Struct, frozen=True, kw_only=True):
    """What a node image promises, and what it needs."""

    name: str
    state_path: str
    kubeconfig_path: str
    api_port: int
    gateway_port: int
    node_name_variable: str
    sans_variable: str
    registered_command: tuple[str, ...]
    """Waits until API and node are there; pods may still be missing."""
    wait_command: tuple[str, ...]
    """Waits until everything is ready."""
    kubectl: tuple[str, ...]
    registries_path: str
    """Folder of containerd's host files; one that holdfast alone writes to."""
    logins_path: str
    """The kubelet's own file of registry logins, below the state path."""
    log_folder: str
    components: tuple[str, ...]
    capabilities: tuple[str, ...]
    devices: tuple[str, ...]
    tmpfs: dict[str, str]
    command: tuple[str, ...] = ()
    datastore: str = "etcd"
    """The datastore's folder below the state path: what an upgrade copies."""


HOLDFAST = NodeProfile(
    name="holdfast",
    state_path="/var/lib/holdfast",
    kubeconfig_path="/var/lib/holdfast/kubeconfig/admin.yaml",
    api_port=6443,
    gateway_port=8443,
    node_name_variable="HOLDFAST_NODE_NAME",
    sans_variable="HOLDFAST_API_SANS",
    registered_command=("holdfast-node", "wait", "--for", "node"),
    wait_command=("holdfast-node", "wait", "--for", "ready"),
    kubectl=("kubectl", "--kubeconfig", "/var/lib/holdfast/kubeconfig/admin.yaml"),
    registries_path="/var/lib/holdfast/registries",
    logins_path="/var/lib/holdfast/kubelet/config.json",
    log_folder="/var/lib/holdfast/logs",
    components=(
        "etcd",
        "kube-apiserver",
        "kube-controller-manager",
        "kube-scheduler",
        "containerd",
        "kubelet",
        "kube-proxy",
    ),
    capabilities=(
        "AUDIT_WRITE",
        "CHOWN",
        "DAC_OVERRIDE",
        "FOWNER",
        "FSETID",
        "KILL",
        "MKNOD",
        "NET_ADMIN",
        "NET_BIND_SERVICE",
        "NET_RAW",
        "SETFCAP",
        "SETGID",
        "SETPCAP",
        "SETUID",
        "SYS_ADMIN",
        "SYS_CHROOT",
        "SYS_PTRACE",
        "SYSLOG",
    ),
    devices=("/dev/kmsg",),
    tmpfs={"/run": "rw,nosuid,nodev,exec,mode=755", "/tmp": "rw,nosuid,nodev,exec,mode=1777"},  # noqa: S108 (inside the container)
)
