"""A real API server with controller manager and scheduler, and simulated nodes and pods (kwok).

kwok is built from a pinned Go module and kept in holdfast's cache. holdfast's controller runs as a separate
process.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

from holdfast import home
from holdfast.api import build_crds
from holdfast.images.build_tools import find_go
from holdfast.kube import Objects, api_client, condition
from holdfast.retry import Policy, constant
from holdfast.testing.apiserver import KubeServer
from holdfast.testing.apiserver.processes import ChildProcess, free_ports, node_binary

KWOK = "v0.8.0"
COMMAND = Path(sys.executable).parent / "holdfast"
SOON = Policy(attempts=None, deadline=60, backoff=constant(0.05), retry_on=(AssertionError, OSError))
STAGES = Path(__file__).parent / "stages.yaml"
TICKS = os.sysconf("SC_CLK_TCK")


def kwok() -> Path:
    """The program, built the first time."""
    folder = home.cache_dir() / "bench" / f"kwok-{KWOK}"
    program = folder / "kwok"
    if not program.exists():
        go, _ = find_go()
        folder.mkdir(parents=True, exist_ok=True)
        subprocess.run(
            [go, "install", f"sigs.k8s.io/kwok/cmd/kwok@{KWOK}"],
            check=True, stdout=sys.stderr, env={**os.environ, "GOBIN": str(folder), "CGO_ENABLED": "0"},
        )  # fmt: skip
    return program


@contextmanager
def simulated_cluster(nodes: int):
    """A server on which pods get scheduled, run and end, on so many nodes that are only said to be there."""
    program, children = kwok(), []
    with KubeServer(controllers=True) as server, api_client(server.kubeconfig) as api:
        config, logs = f"--kubeconfig={server.kubeconfig}", server.directory
        [port] = free_ports(1)
        try:
            words = ["kube-scheduler", config, f"--secure-port={port}", "--leader-elect=false"]
            children.append(ChildProcess("scheduler", [node_binary(), *words], log=logs / "scheduler.log"))
            words = [config, "--manage-all-nodes", f"--config={STAGES}", "--node-lease-duration-seconds=40"]
            children.append(ChildProcess("kwok", [program, *words], log=logs / "kwok.log"))
            _install_kinds(api)
            for number in range(nodes):
                Objects(api).create(_node(f"node-{number}"))
            for number in range(nodes):
                Objects(api).wait("Node", f"node-{number}", condition("Ready"), deadline=60)
            yield server
        finally:
            for child in children:
                child.kill()


def _install_kinds(api) -> None:
    def schema(path):
        asked = api.param_serialize("GET", path, auth_settings=["BearerToken"])
        return json.loads(api.call_api(*asked).read())

    objects = Objects(api)
    kinds = build_crds(schema("/openapi/v3/api/v1"), schema("/openapi/v3/apis/networking.k8s.io/v1"))
    for made in [objects.apply(each, force=True) for each in kinds]:
        objects.wait("CustomResourceDefinition", made.name, condition("Established"), deadline=60)


def _node(name):
    room = {"cpu": "1000", "memory": "1000Gi", "pods": "1000"}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name}},
        "status": {"allocatable": room, "capacity": room, "phase": "Running"},
    }


class ControllerProcess:
    """A `holdfast controller run` process, and the CPU time and memory that it has used."""

    def __init__(self, kubeconfig, namespace, log, *, before=()) -> None:
        [self.port] = free_ports(1)
        words = [*before, COMMAND, "controller", "run", "--kubeconfig", kubeconfig, "--host", "127.0.0.1"]
        words += ["--port", str(self.port), "--namespace", namespace, "--lease-namespace", namespace]
        as_deployed = {"HOLDFAST_CONTROLLER_NETWORK_POLICIES": "ignored"}
        self.child = ChildProcess("controller", words, log=log, env={**os.environ, **as_deployed})

    def __enter__(self):
        SOON.call(self._check_leads)
        return self

    def __exit__(self, *_):
        self.child.kill()

    def _check_leads(self) -> None:
        import urllib.request

        assert not self.child.wait_for_exit(0), self.child.failure("ended early")
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/readyz", timeout=5) as answer:
            assert answer.read() == b"leading\n"

    def cpu_seconds(self) -> float:
        fields = Path(f"/proc/{self.child.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / TICKS

    def memory_mib(self) -> float:
        pages = int(Path(f"/proc/{self.child.pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE") / 2**20
