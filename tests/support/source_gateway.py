"""A gateway's API from the source tree on any Kubernetes: commands and the SDK use it like a gateway.

The server runs as a separate process on loopback with real mutual TLS; a separate HOLDFAST_HOME has the files
that `up` would write. It has no node and no controller (see controller_process.py).
"""

from __future__ import annotations

import datetime as dt
import os
import urllib.request
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest
from tests.support.controller_process import COMMAND, ControllerProcess, install_crds
from tests.support.holdfast_cli import HoldfastCli

from holdfast import home
from holdfast.gateway import Gateway, GatewayFiles
from holdfast.gateway.registry import GatewayMetadata, set_active_gateway, write_metadata
from holdfast.kube import Objects, api_client
from holdfast.pki import ClientCertificateStore, ClientIdentity, issue_bundle
from holdfast.retry import Policy, constant
from holdfast.testing.apiserver.processes import ChildProcess, free_ports

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path
    from typing import Self

    from tests.support.gateway import TestGateway

LOOPBACK = "127.0.0.1"
EVENTUALLY = Policy(attempts=None, deadline=60, backoff=constant(0.05), retry_on=OSError)


class SourceGateway:
    """`with SourceGateway("dev", kubeconfig, namespace, folder) as it:`; HOLDFAST_HOME is that folder."""

    def __init__(self, name: str, kubeconfig: Path, namespace: str, folder: Path) -> None:
        self.name, self.namespace, self.folder = name, namespace, folder
        self.kubeconfig = kubeconfig
        self.port, self._health_port = free_ports(2)
        self.holdfast = HoldfastCli(folder)
        self.child: ChildProcess | None = None
        assert home.config_dir().is_relative_to(folder), "HOLDFAST_HOME must be this gateway's folder"

    def __enter__(self) -> Self:
        bundle = issue_bundle(["localhost", LOOPBACK], at=dt.datetime.now(dt.UTC))
        for name, content in {
            "crt": bundle.server.certificate,
            "key": bundle.server.key,
            "ca": bundle.ca,
        }.items():
            (self.folder / name).write_bytes(content)
        ClientCertificateStore(GatewayFiles(self.name).mtls).write(ClientIdentity(bundle.ca, bundle.client))
        write_metadata(GatewayMetadata(name=self.name, image="none", port=self.port, gateway_port=self.port))
        set_active_gateway(self.name)
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.child.kill()

    def start(self) -> None:
        """Start the server and wait until it listens."""
        words = [COMMAND, "server", "run", "--name", self.name, "--host", LOOPBACK, "--port", str(self.port)]
        words += ["--health-port", str(self._health_port), "--certificate", self.folder / "crt"]
        words += ["--key", self.folder / "key", "--client-ca", self.folder / "ca"]
        words += ["--kubeconfig", self.kubeconfig, "--namespace", self.namespace]
        self.child = ChildProcess("server", words, log=self.folder / "server.log", env=dict(os.environ))
        EVENTUALLY.call(self._check_healthy)

    def kill(self) -> None:
        """Kill the server with SIGKILL."""
        self.child.kill()

    @property
    def gateway(self) -> Gateway:
        return Gateway(self.name)

    def _check_healthy(self) -> None:
        assert not self.child.wait_for_exit(0), self.child.failure("ended early")
        urllib.request.urlopen(f"http://{LOOPBACK}:{self._health_port}/healthz", timeout=5).close()


@contextmanager
def source_sandboxes(node: TestGateway, namespace: str, folder: Path) -> Iterator[SourceGateway]:
    """The API and the controller from the source tree on a running node, without sandboxes."""
    kubeconfig = node.holdfast.home / "config" / "gateways" / node.name / "kubeconfig"
    with api_client(kubeconfig) as api, pytest.MonkeyPatch.context() as patch:
        install_crds(api)
        Objects(api).apply(
            {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}}, force=True
        )
        patch.setenv("HOLDFAST_HOME", str(folder))
        controller = ControllerProcess(kubeconfig, namespace, folder / "controller.log")
        with SourceGateway("source", kubeconfig, namespace, folder) as gateway:
            try:
                controller.start()
                yield gateway
            finally:
                controller.kill()
