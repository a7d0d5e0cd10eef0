"""A gateway's API from the source tree on any Kubernetes: for commands and the SDK, it is a gateway.

The server runs as a process of its own on loopback, with real mutual TLS; a home of its own holds what `up`
would have written. Not here: a node, and the controller (controllers.py).
"""

from __future__ import annotations

import datetime as dt
import os
import urllib.request
from typing import TYPE_CHECKING

from tests.support.commands import Holdfast
from tests.support.controllers import COMMAND

from holdfast import home
from holdfast.gateway.facade import Gateway
from holdfast.gateway.spec import GatewayFiles, Metadata, set_active, write_metadata
from holdfast.pki import ClientFiles, issue
from holdfast.pki.material import Identity
from holdfast.retry import Policy, constant
from holdfast.testing.kube_components import free_ports
from holdfast.testing.processes import Child

if TYPE_CHECKING:
    from pathlib import Path
    from typing import Self

LOOPBACK = "127.0.0.1"
SOON = Policy(attempts=None, deadline=60, backoff=constant(0.05), retry_on=OSError)


class SourceGateway:
    """`with SourceGateway("dev", kubeconfig, namespace, folder) as it:`; HOLDFAST_HOME is that folder."""

    def __init__(self, name: str, kubeconfig: Path, namespace: str, folder: Path) -> None:
        self.name, self.namespace, self.folder = name, namespace, folder
        self.kubeconfig = kubeconfig
        self.port, self._health_port = free_ports(2)
        self.holdfast = Holdfast(folder)
        self.child: Child | None = None
        assert home.config_dir().is_relative_to(folder), "HOLDFAST_HOME must be this gateway's folder"

    def __enter__(self) -> Self:
        bundle = issue(["localhost", LOOPBACK], at=dt.datetime.now(dt.UTC))
        for name, content in {
            "crt": bundle.server.certificate,
            "key": bundle.server.key,
            "ca": bundle.ca,
        }.items():
            (self.folder / name).write_bytes(content)
        ClientFiles(GatewayFiles(self.name).mtls).write(Identity(bundle.ca, bundle.client))
        write_metadata(Metadata(name=self.name, image="none", port=self.port, gateway_port=self.port))
        set_active(self.name)
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.child.kill()

    def start(self) -> None:
        """Start the server, and wait until it listens."""
        words = [COMMAND, "server", "run", "--name", self.name, "--host", LOOPBACK, "--port", str(self.port)]
        words += ["--health-port", str(self._health_port), "--certificate", self.folder / "crt"]
        words += ["--key", self.folder / "key", "--client-ca", self.folder / "ca"]
        words += ["--kubeconfig", self.kubeconfig, "--namespace", self.namespace]
        self.child = Child("server", words, log=self.folder / "server.log", env=dict(os.environ))
        SOON.call(self._is_up)

    def kill(self) -> None:
        """As the kernel would."""
        self.child.kill()

    @property
    def gateway(self) -> Gateway:
        return Gateway(self.name)

    def _is_up(self) -> None:
        assert not self.child.ended_within(0), self.child.failed("ended early")
        urllib.request.urlopen(f"http://{LOOPBACK}:{self._health_port}/healthz", timeout=5).close()
