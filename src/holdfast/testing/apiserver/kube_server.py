"""Run a kube-apiserver and etcd as child processes, for tests without a container engine.

    with KubeServer() as server:
        config.load_kube_config(str(server.kubeconfig))

The cluster has no node: pods are stored and never run. With `controllers=True` namespaces are deleted,
service accounts are created and dependents are garbage-collected as in any cluster.
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
from typing import Any, Self

from holdfast.errors import TemporaryError, UsageError
from holdfast.testing.apiserver import processes
from holdfast.testing.apiserver.processes import LOOPBACK, ChildProcess, ServerFiles, free_ports, node_binary
from holdfast.testing.ephemeral_pki import write_kubeconfig

_PORT_ATTEMPTS = 3
_PROBE_INTERVAL = 0.05
_ADDRESS_IN_USE = "address already in use"


class KubeServer:
    """A kube-apiserver with its etcd; a context manager that stops both on exit.

    Args:
        controllers: also run the controller manager.
        binary: the node's multi-call program; by default, `HOLDFAST_NODE_BINARY` or the built one.
        timeout: seconds until the server must serve requests.

    Raises:
        UsageError: an argument is invalid, or the server is used before `start`.
        ToolNotFoundError: the program is not built; raised by `start`.
        TemporaryError: a process ended, or did not serve in time; raised by `start`.
    """

    def __init__(
        self, *, controllers: bool = False, binary: Path | None = None, timeout: float = 60.0
    ) -> None:
        if not timeout > 0:
            raise UsageError(f"timeout: {timeout!r} is not a number of seconds above 0")
        self._binary = binary
        self._controllers = controllers
        self._timeout = timeout
        self._children: list[ChildProcess] = []
        self._files: ServerFiles | None = None
        self._port = 0

    @property
    def url(self) -> str:
        """URL of the server."""
        return f"https://{LOOPBACK}:{self._port}"

    @property
    def kubeconfig(self) -> Path:
        """Path of the administrator's kubeconfig."""
        return self._running_files.kubeconfig

    @property
    def directory(self) -> Path:
        """Directory of logs, keys and data; deleted by `stop`."""
        return self._running_files.root

    @property
    def _running_files(self) -> ServerFiles:
        if self._files is None:
            raise UsageError("The server is not running.", hint="Use it as `with KubeServer() as server:`.")
        return self._files

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_exc: object) -> None:
        self.stop()

    def start(self) -> None:
        """Start etcd and the API server, and wait until it serves requests."""
        if self._files is not None:
            raise UsageError(
                "The server is already running.", hint="Create another KubeServer for a second server."
            )
        binary = self._binary if self._binary is not None else node_binary()
        for attempt in range(1, _PORT_ATTEMPTS + 1):
            self._files = ServerFiles(Path(tempfile.mkdtemp(prefix="holdfast-kube-")))
            try:
                self._launch(binary, self._files)
                break
            # Also for Ctrl-C: `__exit__` does not run if `__enter__` raises.
            except BaseException as error:
                self.stop()
                # Another process may take a port between its selection and its use.
                if _ADDRESS_IN_USE not in str(error) or attempt == _PORT_ATTEMPTS:
                    raise

    def _launch(self, binary: Path, files: ServerFiles) -> None:
        etcd_port, peer_port, self._port, manager_port = free_ports(4)
        write_kubeconfig(files.kubeconfig, url=self.url, ca=files.ca.certificate, client=files.admin)
        self._spawn(binary, processes.etcd_command(files, client_port=etcd_port, peer_port=peer_port))
        self._spawn(
            binary,
            processes.apiserver_command(
                files, port=self._port, etcd_port=etcd_port, controllers=self._controllers
            ),
        )
        deadline = time.monotonic() + self._timeout
        self._wait_for("/readyz", deadline)
        # A ready server may not have created the default namespace yet.
        self._wait_for("/api/v1/namespaces/default", deadline)
        if self._controllers:
            self._spawn(binary, processes.controller_manager_command(files, port=manager_port))
            self._wait_for("/api/v1/namespaces/default/serviceaccounts/default", deadline)

    def _spawn(self, binary: Path, argv: list[str]) -> None:
        log = self.directory / f"{argv[0]}.log"
        env = {**os.environ, "NO_PROXY": LOOPBACK}
        self._children.append(ChildProcess(argv[0], [binary, *argv], log=log, env=env))

    def _wait_for(self, path: str, deadline: float) -> None:
        while True:
            try:
                status, _ = self.request("GET", path)
                if status == http.client.OK:
                    return
                result = f"HTTP {status}"
            except (OSError, http.client.HTTPException) as error:
                result = repr(error)
            for child in self._children:
                # This wait is also the delay between two requests.
                if child.wait_for_exit(_PROBE_INTERVAL):
                    raise child.failure("stopped while starting")
            if time.monotonic() >= deadline:
                raise self._children[-1].failure(
                    f"did not serve {path} within {self._timeout:g} s ({result})"
                )

    def stop(self) -> None:
        """Kill the processes and delete their directory; does nothing if there are none."""
        while self._children:
            self._children.pop().kill()
        if self._files is not None:
            shutil.rmtree(self._files.root, ignore_errors=True)
            self._files = None

    def request(self, method: str, path: str, body: Any = None) -> tuple[int, Any]:
        """Send a request as administrator, without the client under test; returns status and decoded body."""
        files = self._running_files
        context = ssl.create_default_context(cafile=str(files.ca_file))
        context.load_cert_chain(*files.admin_files)
        connection = http.client.HTTPSConnection(LOOPBACK, self._port, timeout=10, context=context)
        try:
            sent = None if body is None else json.dumps(body)
            connection.request(method, path, sent, {"Content-Type": "application/json"})
            response = connection.getresponse()
            content = response.read()
        finally:
            connection.close()
        try:
            return response.status, json.loads(content)
        except ValueError:
            return response.status, content.decode(errors="replace")

    def create_namespace(self, prefix: str = "test") -> str:
        """Create a namespace with a unique name; with controllers, wait until it accepts pods."""
        name = f"{prefix}-{secrets.token_hex(4)}"
        status, body = self.request("POST", "/api/v1/namespaces", {"metadata": {"name": name}})
        if status != http.client.CREATED:
            raise TemporaryError(f"The namespace {name} was not created: {status} {body}")
        if self._controllers:
            path = f"/api/v1/namespaces/{name}/serviceaccounts/default"
            self._wait_for(path, time.monotonic() + self._timeout)
        return name

    def user_kubeconfig(self, name: str, *groups: str) -> Path:
        """Write a kubeconfig for another user; the test grants the permissions with RBAC."""
        path = self.directory / f"kubeconfig-{secrets.token_hex(4)}"
        ca = self._running_files.ca
        write_kubeconfig(path, url=self.url, ca=ca.certificate, client=ca.issue(name, groups=groups))
        return path
