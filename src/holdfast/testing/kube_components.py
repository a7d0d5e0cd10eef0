"""Command lines of the control plane that `KubeServer` runs, and the files these name.

Throw-away settings: no fsync, loopback only, nothing that a test would wait for at the end.
Not here: starting and stopping (`kube_server`), and the gateway's node, which is configured by its image.
"""

from __future__ import annotations

import socket
from contextlib import ExitStack
from typing import TYPE_CHECKING

from holdfast.testing.kubeconfigs import write_kubeconfig
from holdfast.testing.throwaway_pki import Authority, Pair, signing_key, write_private

if TYPE_CHECKING:
    from pathlib import Path

LOOPBACK = "127.0.0.1"


class Layout:
    """One server's directory: its authority, certificates, keys and kubeconfigs."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.authority = Authority("holdfast-test-ca")
        self.authority_file = root / "ca.crt"
        self.authority_file.write_bytes(self.authority.certificate)
        self.serving = self.authority.issue("kube-apiserver", server=True).write(root, "serving")
        self.admin = self.authority.issue("admin", groups=("system:masters",))
        self.admin_files = self.admin.write(root, "admin")
        self.token_key = root / "service-account.key"
        write_private(self.token_key, signing_key())
        self.kubeconfig = root / "kubeconfig"

    def write_kubeconfig(self, url: str) -> None:
        write_kubeconfig(self.kubeconfig, url=url, authority=self.authority.certificate, client=self.admin)

    def client(self, name: str, groups: tuple[str, ...]) -> Pair:
        return self.authority.issue(name, groups=groups)


def free_ports(count: int) -> list[int]:
    """Ports on loopback that nobody listens on right now, all different."""
    with ExitStack() as stack:
        ports: list[int] = []
        for _ in range(count):
            listener = stack.enter_context(socket.socket())
            listener.bind((LOOPBACK, 0))
            ports.append(listener.getsockname()[1])
        return ports


def etcd(layout: Layout, *, client_port: int, peer_port: int) -> list[str]:
    certificate, key = layout.serving
    client, peer = f"https://{LOOPBACK}:{client_port}", f"https://{LOOPBACK}:{peer_port}"
    words = [
        "etcd",
        f"--data-dir={layout.root / 'etcd'}",
        "--name=test",
        f"--initial-cluster=test={peer}",
        f"--initial-advertise-peer-urls={peer}",
        f"--listen-peer-urls={peer}",
        f"--advertise-client-urls={client}",
        f"--listen-client-urls={client}",
        "--unsafe-no-fsync",
        "--log-level=warn",
    ]
    for prefix in ("", "peer-"):
        words += [
            f"--{prefix}cert-file={certificate}",
            f"--{prefix}key-file={key}",
            f"--{prefix}trusted-ca-file={layout.authority_file}",
            f"--{prefix}client-cert-auth",
        ]
    return words


def apiserver(layout: Layout, *, port: int, etcd_port: int, controllers: bool) -> list[str]:
    certificate, key = layout.serving
    words = [
        "kube-apiserver",
        f"--bind-address={LOOPBACK}",
        f"--advertise-address={LOOPBACK}",
        f"--secure-port={port}",
        f"--tls-cert-file={certificate}",
        f"--tls-private-key-file={key}",
        f"--client-ca-file={layout.authority_file}",
        f"--cert-dir={layout.root / 'apiserver'}",
        f"--etcd-servers=https://{LOOPBACK}:{etcd_port}",
        f"--etcd-cafile={layout.authority_file}",
        f"--etcd-certfile={certificate}",
        f"--etcd-keyfile={key}",
        "--service-account-issuer=https://kubernetes.default.svc",
        f"--service-account-key-file={layout.token_key}",
        f"--service-account-signing-key-file={layout.token_key}",
        "--service-cluster-ip-range=10.96.0.0/16",
        "--authorization-mode=RBAC",
        "--endpoint-reconciler-type=none",
        "--allow-privileged",
        "--profiling=false",
    ]
    if not controllers:
        # Nobody makes default service accounts then, and pods would be refused for the lack of one.
        words.append("--disable-admission-plugins=ServiceAccount")
    return words


def controller_manager(layout: Layout, *, port: int) -> list[str]:
    certificate, key = layout.serving
    return [
        "kube-controller-manager",
        f"--kubeconfig={layout.kubeconfig}",
        f"--bind-address={LOOPBACK}",
        f"--secure-port={port}",
        f"--tls-cert-file={certificate}",
        f"--tls-private-key-file={key}",
        f"--service-account-private-key-file={layout.token_key}",
        f"--root-ca-file={layout.authority_file}",
        "--leader-elect=false",
        "--concurrent-namespace-syncs=10",
    ]
