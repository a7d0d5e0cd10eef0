"""A real kube-apiserver with its etcd as child processes, for tests: no container engine, ready in seconds.

    with KubeServer() as server:
        config.load_kube_config(str(server.kubeconfig))

Not here: nodes. Pods are stored and never run; with `controllers=True` namespaces end, service accounts
appear and owners are garbage-collected as on any cluster.
"""

from __future__ import annotations

import http.client
import json
import os
import secrets
import shutil
import ssl
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from holdfast.errors import TemporaryError, UsageError
from holdfast.testing import kube_components
from holdfast.testing.kube_components import LOOPBACK, Layout, free_ports
from holdfast.testing.kubeconfigs import write_kubeconfig
from holdfast.testing.node_binary import node_binary
from holdfast.testing.processes import Child

if TYPE_CHECKING:
    from types import TracebackType

_PORT_ATTEMPTS = 3
_PROBE_PAUSE = 0.05
_BUSY = "address already in use"


class KubeServer:
    """Starts on entry, stops just what it started on exit; one directory holds all it writes."""

    def __init__(
        self, *, controllers: bool = False, binary: Path | None = None, timeout: float = 60.0
    ) -> None:
        if not timeout > 0:
            raise UsageError(f"timeout: {timeout!r} is not a number of seconds above 0")
        self._binary = binary
        self._controllers = controllers
        self._timeout = timeout
        self._children: list[Child] = []
        self._layout: Layout | None = None
        self._port = 0

    @property
    def url(self) -> str:
        return f"https://{LOOPBACK}:{self._port}"

    @property
    def kubeconfig(self) -> Path:
        """The administrator's kubeconfig, with a client certificate."""
        return self._started.kubeconfig

    @property
    def directory(self) -> Path:
        """Where logs, keys and data are; gone after `stop`."""
        return self._started.root

    @property
    def _started(self) -> Layout:
        if self._layout is None:
            raise UsageError("The server is not running.", hint="Use it as `with KubeServer() as server:`.")
        return self._layout

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def start(self) -> None:
        """Start etcd and the API server and wait until requests are served."""
        if self._layout is not None:
            raise UsageError("The server is running already.", hint="One KubeServer runs one server.")
        binary = self._binary if self._binary is not None else node_binary()
        for attempt in range(1, _PORT_ATTEMPTS + 1):
            self._layout = Layout(Path(tempfile.mkdtemp(prefix="holdfast-kube-")))
            try:
                self._launch(binary, self._layout)
            except BaseException as error:
                self.stop()
                # Between choosing a port and listening on it somebody else may take it.
                if isinstance(error, TemporaryError) and _BUSY in str(error) and attempt < _PORT_ATTEMPTS:
                    continue
                raise
            return

    def _launch(self, binary: Path, layout: Layout) -> None:
        etcd_port, peer_port, self._port, manager_port = free_ports(4)
        layout.write_kubeconfig(self.url)
        self._spawn(binary, kube_components.etcd(layout, client_port=etcd_port, peer_port=peer_port))
        self._spawn(
            binary,
            kube_components.apiserver(
                layout, port=self._port, etcd_port=etcd_port, controllers=self._controllers
            ),
        )
        deadline = time.monotonic() + self._timeout
        self._wait_for("/readyz", deadline)
        self._wait_for("/api/v1/namespaces/default", deadline)
        if self._controllers:
            self._spawn(binary, kube_components.controller_manager(layout, port=manager_port))
            self._wait_for("/api/v1/namespaces/default/serviceaccounts/default", deadline)

    def _spawn(self, binary: Path, words: list[str]) -> None:
        log = self.directory / f"{words[0]}.log"
        env = {**os.environ, "NO_PROXY": LOOPBACK}
        self._children.append(Child(words[0], [binary, *words], log=log, env=env))

    def _wait_for(self, path: str, deadline: float) -> None:
        while True:
            try:
                status, _ = self.request("GET", path)
                if status == http.client.OK:
                    return
                seen = f"HTTP {status}"
            except (OSError, http.client.HTTPException) as error:
                seen = repr(error)
            for child in self._children:
                if child.ended_within(_PROBE_PAUSE):
                    raise child.failed("stopped while starting")
            if time.monotonic() >= deadline:
                raise self._children[-1].failed(f"did not serve {path} within {self._timeout:g} s ({seen})")

    def stop(self) -> None:
        """Kill the processes and remove their directory; harmless when there are none."""
        while self._children:
            self._children.pop().kill()
        if self._layout is not None:
            shutil.rmtree(self._layout.root, ignore_errors=True)
            self._layout = None

    def request(self, method: str, path: str, body: Any = None) -> tuple[int, Any]:
        """One call as administrator that owes nothing to the client under test: status and decoded answer."""
        layout = self._started
        context = ssl.create_default_context(cafile=str(layout.authority_file))
        context.load_cert_chain(*layout.admin_files)
        connection = http.client.HTTPSConnection(LOOPBACK, self._port, timeout=10, context=context)
        try:
            sent = None if body is None else json.dumps(body)
            connection.request(method, path, sent, {"Content-Type": "application/json"})
            answer = connection.getresponse()
            content = answer.read()
        finally:
            connection.close()
        try:
            return answer.status, json.loads(content)
        except ValueError:
            return answer.status, content.decode(errors="replace")

    def create_namespace(self, prefix: str = "test") -> str:
        """Make a namespace with a name of its own and return that; with controllers, ready for pods."""
        name = f"{prefix}-{secrets.token_hex(4)}"
        status, answer = self.request("POST", "/api/v1/namespaces", {"metadata": {"name": name}})
        if status != http.client.CREATED:
            raise TemporaryError(f"The namespace {name} was not created: {status} {answer}")
        if self._controllers:
            path = f"/api/v1/namespaces/{name}/serviceaccounts/default"
            self._wait_for(path, time.monotonic() + self._timeout)
        return name

    def user_kubeconfig(self, name: str, *groups: str) -> Path:
        """A kubeconfig for somebody who is not the administrator: what RBAC grants to them is the test's."""
        path = self.directory / f"kubeconfig-{secrets.token_hex(4)}"
        layout = self._started
        write_kubeconfig(
            path, url=self.url, authority=layout.authority.certificate, client=layout.client(name, groups)
        )
        return path
