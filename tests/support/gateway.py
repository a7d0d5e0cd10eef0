"""A gateway for a test: its commands, kubectl on the host, and pods."""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import zlib
from contextlib import suppress
from typing import TYPE_CHECKING

from holdfast.containers import is_port_taken
from holdfast.remote import connect
from holdfast.testing.apiserver.processes import node_binary

if TYPE_CHECKING:
    from tests.support.holdfast_cli import HoldfastCli

    from holdfast.containers import ContainerEngine

HELPER_IMAGE = "holdfast.dev/helper:1"

# Below the ephemeral ports, and above those that `auto` chooses.
_OWN_PORTS, _PORTS_PER_WORKER = range(28000, 32700), 100
_port_numbers = itertools.count()


def own_ports() -> dict[str, str]:
    """Settings for ports that no other gateway gets.

    A gateway without a container does not reserve its automatic ports. Another one, of a test that runs at
    the same time, can take them while a test has removed the container.
    """
    run = os.environ.get("PYTEST_XDIST_TESTRUNUID", str(os.getpid()))
    worker = os.environ.get("PYTEST_XDIST_WORKER", "")
    first = (
        zlib.crc32(f"{run} {worker}".encode()) % (len(_OWN_PORTS) // _PORTS_PER_WORKER) * _PORTS_PER_WORKER
    )
    numbers = (first + next(_port_numbers) % _PORTS_PER_WORKER for _ in itertools.count())
    free = (port for port in map(_OWN_PORTS.__getitem__, numbers) if not is_port_taken(port))
    return {"HOLDFAST_PORT": str(next(free)), "HOLDFAST_GATEWAY_PORT": str(next(free))}


class TestGateway:
    """A gateway that a test uses through the command line and kubectl."""

    __test__ = False

    def __init__(self, name: str, holdfast: HoldfastCli, *, has_own_ports: bool = False) -> None:
        self.name = name
        self.holdfast = holdfast
        self.container = f"holdfast-{name}"
        self._first_settings = own_ports() if has_own_ports else {}

    def up(self, *options: str) -> dict:
        """Run `up`; the first one chooses ports of the gateway's own, which it keeps."""
        settings, self._first_settings = self._first_settings, {}
        command = self.holdfast.with_environment(**{**settings, **self.holdfast.environment})
        return json.loads(command("up", self.name, *options, "--json"))

    def destroy(self) -> None:
        self.holdfast("destroy", self.name, "--data", "--yes", self.name)

    def force_destroy(self, engine: ContainerEngine | None = None) -> None:
        """Destroy the gateway with its data in any state; kill the node, which is faster."""
        from docker.errors import APIError

        with suppress(APIError):
            (engine or connect()).client.kill(self.container)
        self.holdfast.run("destroy", self.name, "--data", "--yes", self.name)

    def inspect(self) -> dict:
        return connect().client.inspect_container(self.container)

    def kubectl(self, *words: str, stdin: str | None = None, timeout: float = 120) -> str:
        """kubectl on the host, through the kubeconfig that `up` wrote."""
        path = self.holdfast.home / "config" / "gateways" / self.name / "kubeconfig"
        ended = subprocess.run(
            [*self.holdfast.prefix, str(node_binary()), "kubectl", "--kubeconfig", str(path), *words],
            input=stdin, capture_output=True, text=True, timeout=timeout, check=False,
        )  # fmt: skip
        assert ended.returncode == 0, f"kubectl {' '.join(words)}: {ended.stdout}{ended.stderr}"
        return ended.stdout

    def apply(self, *objects: dict) -> None:
        body = {"apiVersion": "v1", "kind": "List", "items": list(objects)}
        self.kubectl("apply", "-f", "-", stdin=json.dumps(body))

    def get(self, *words: str) -> dict:
        return json.loads(self.kubectl("get", *words, "-o", "json"))

    def wait_ready(self, pod: str, seconds: int = 90) -> None:
        self.kubectl("wait", "--for=condition=Ready", f"pod/{pod}", f"--timeout={seconds}s")

    def exec_in_pod(self, pod: str, *command: str) -> str:
        return self.kubectl("exec", pod, "--", *command)

    def write_test_file(self) -> TestGateway:
        """Run a pod that writes a file into its workspace; `assert_test_file_intact` checks it."""
        self.apply(pvc_manifest("work"), pod_manifest("keeper", claim="work"))
        self.wait_ready("keeper")
        self.exec_in_pod("keeper", "sh", "-c", "head -c 300000 /dev/urandom > /data/blob && sync")
        self.checksum = self.exec_in_pod("keeper", "sha256sum", "/data/blob")
        return self

    def assert_test_file_intact(self) -> None:
        """The pod is ready with an unchanged file, on the only node, which has the right name."""
        self.wait_ready("keeper")
        assert self.exec_in_pod("keeper", "sha256sum", "/data/blob") == self.checksum
        (node,) = self.get("nodes")["items"]
        assert node["metadata"]["name"] == f"holdfast-{self.name}"


def pod_manifest(
    name: str, *, command: str = "exec tail -f /dev/null", claim: str | None = None, **labels: str
) -> dict:
    """A small pod from the node's own helper image."""
    container = {
        "name": "main",
        "image": HELPER_IMAGE,
        "imagePullPolicy": "Never",
        "command": ["/bin/sh", "-c", command],
    }
    spec: dict = {"containers": [container], "terminationGracePeriodSeconds": 1}
    if claim is not None:
        container["volumeMounts"] = [{"name": "data", "mountPath": "/data"}]
        spec["volumes"] = [{"name": "data", "persistentVolumeClaim": {"claimName": claim}}]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": labels or {"app": name}},
        "spec": spec,
    }


def pvc_manifest(name: str, size: str = "16Mi") -> dict:
    """A PVC of the default storage class."""
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": name},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": size}}},
    }


def service_manifest(name: str, *, app: str, port: int) -> dict:
    """A Service in front of the pods of one app."""
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": name},
        "spec": {"selector": {"app": app}, "ports": [{"port": port, "targetPort": port}]},
    }
