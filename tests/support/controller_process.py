"""A controller as a separate process, and a fake kubelet that runs its pods."""

from __future__ import annotations

import json
import os
import signal
import sys
import urllib.error
import urllib.request
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

from tests.support.background_thread import BackgroundThread

from holdfast.api import API_VERSION, EXTENSIONS_API_VERSION, build_crds
from holdfast.errors import ObjectConflictError
from holdfast.kube import Objects, WaitResult, api_client, condition
from holdfast.retry import Policy, constant
from holdfast.testing.apiserver.processes import ChildProcess, free_ports

COMMAND = Path(sys.executable).parent / "holdfast"
API_VERSIONS = {
    "Sandbox": API_VERSION,
    "SandboxClaim": EXTENSIONS_API_VERSION,
    "SandboxTemplate": EXTENSIONS_API_VERSION,
    "SandboxWarmPool": EXTENSIONS_API_VERSION,
}
EVENTUALLY = Policy(attempts=None, deadline=60, backoff=constant(0.05), retry_on=(AssertionError, OSError))


def install_crds(api) -> None:
    """The four CRDs, served."""

    def openapi(path):
        asked = api.param_serialize("GET", path, auth_settings=["BearerToken"])
        return json.loads(api.call_api(*asked).read())

    objects = Objects(api)
    core, networking = openapi("/openapi/v3/api/v1"), openapi("/openapi/v3/apis/networking.k8s.io/v1")
    made = [objects.apply(each, force=True) for each in build_crds(core, networking)]
    for each in made:
        objects.wait("CustomResourceDefinition", each.name, condition("Established"), deadline=60)


class ControllerProcess:
    """`holdfast controller run`, started, killed and started again."""

    def __init__(
        self, kubeconfig, namespace, log: Path, *, identity="", all_namespaces=False, options=()
    ) -> None:
        self.kubeconfig, self.namespace, self._log = kubeconfig, namespace, log
        self._identity, self._all_namespaces, self._options = identity, all_namespaces, options
        self.child: ChildProcess | None = None
        (self.port,) = free_ports(1)

    def start(self, state="leading") -> ControllerProcess:
        words = [COMMAND, "controller", "run", "--kubeconfig", self.kubeconfig, "--host", "127.0.0.1"]
        words += ["--port", str(self.port), "--lease-namespace", self.namespace]
        words += [] if self._all_namespaces else ["--namespace", self.namespace]
        words += ["--identity", self._identity] if self._identity else []
        words += ["--network-policies", "ignored", *self._options]
        self.child = ChildProcess("controller", words, log=self._log, env=dict(os.environ))
        if state is not None:
            self.wait_state(state)
        return self

    def wait_state(self, state) -> None:
        def check():
            assert not self.child.wait_for_exit(0), self.child.failure("ended early")
            assert self.http_get("/readyz") == f"{state}\n"

        EVENTUALLY.call(check)

    def http_get(self, path) -> str:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}{path}", timeout=5) as answer:
                return answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.read().decode()

    def kill(self) -> None:
        """SIGKILL: the controller releases and reports nothing."""
        self.child.kill()

    def stop(self) -> int:
        """Ask it to end; its exit code."""
        os.kill(self.child.pid, signal.SIGTERM)
        assert self.child.wait_for_exit(30), self.child.failure("did not end")
        return self.child._process.returncode

    def log(self) -> str:
        return self._log.read_text()


class SandboxNamespace:
    """One namespace with sandboxes in it, as a test sees it."""

    def __init__(self, objects: Objects, namespace: str) -> None:
        self.objects, self.namespace = objects, namespace
        self.observed_conditions: set[tuple[str, str, str]] = set()
        """kind, condition and what it said, of each that a test waited for and got"""

    def create(self, kind, name, spec, **metadata):
        body = {
            "apiVersion": API_VERSIONS[kind],
            "kind": kind,
            "metadata": {"name": name, "namespace": self.namespace, **metadata},
            "spec": spec,
        }
        return self.objects.create(body)

    def create_sandbox(self, name, metadata=None, pod_spec=None, **spec):
        template = {"spec": {**default_pod_spec(), **(pod_spec or {})}}
        return self.create("Sandbox", name, {"podTemplate": template, **spec}, **(metadata or {}))

    def get(self, kind, name):
        return self.objects.get(kind, name, namespace=self.namespace, api_version=API_VERSIONS.get(kind))

    def list(self, kind):
        return self.objects.list(kind, namespace=self.namespace, api_version=API_VERSIONS.get(kind)).items

    def patch(self, kind, name, patch, subresource=None):
        return self.objects.patch(
            kind,
            name,
            patch,
            namespace=self.namespace,
            api_version=API_VERSIONS.get(kind),
            subresource=subresource,
        )

    def delete(self, kind, name, **options):
        return self.objects.delete(
            kind, name, namespace=self.namespace, api_version=API_VERSIONS.get(kind), **options
        )

    def wait(self, kind, name, until, seconds=60):
        """Watch one object until a function of it holds."""

        def sight(found):
            return WaitResult(
                done=bool(found is not None and until(found)), observed=json.dumps(status_of(found))
            )

        return self.objects.wait(
            kind, name, sight, namespace=self.namespace, api_version=API_VERSIONS.get(kind), deadline=seconds
        )

    def wait_gone(self, kind, name, seconds=60):
        self.objects.wait(
            kind,
            name,
            lambda found: found is None,
            namespace=self.namespace,
            api_version=API_VERSIONS.get(kind),
            deadline=seconds,
        )

    def wait_conditions(self, kind, name, **said):
        """Watch until conditions say this: `Ready="False DependenciesNotReady"`."""
        found = self.wait(
            kind,
            name,
            lambda found: all(condition_summary(found, key) == value for key, value in said.items()),
        )
        self.observed_conditions |= {(kind, key, value) for key, value in said.items() if value is not None}
        return found

    def wait_ready_transitions(self, kind, name, last, began):
        """Record each change of the Ready condition until the last; set `began` after the first."""
        told = []

        def until(found):
            told.append(condition_summary(found, "Ready"))
            began.set()
            return told[-1] == last

        self.wait(kind, name, until)
        self.observed_conditions |= {(kind, "Ready", each) for each in told}
        return list(dict.fromkeys(told))

    def mark_pod_running(self, name):
        """Play the kubelet for one pod: it runs, and is ready."""
        return self.patch("Pod", name, {"status": running_pod_status()}, subresource="status")


def default_pod_spec():
    return {
        "automountServiceAccountToken": False,
        "terminationGracePeriodSeconds": 0,
        "containers": [{"name": "main", "image": "app:1"}],
    }


def status_of(found):
    return {} if found is None else found.get("status") or {}


def is_pool_ready(pool, replicas):
    """Whether the controller has seen the pool's spec and reports this many ready replicas.

    The published status leaves out a count of zero, as it leaves out everything before the first pass.
    """
    status = status_of(pool)
    is_current = status.get("observedGeneration") == pool["metadata"]["generation"]
    return is_current and status.get("readyReplicas", 0) == replicas


def condition_summary(found, kind):
    """One condition in two words, or None."""
    rows = status_of(found).get("conditions") or ()
    return next((f"{row['status']} {row['reason']}" for row in rows if row["type"] == kind), None)


def running_pod_status(ip="10.9.0.1"):
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    rows = [
        {"type": kind, "status": "True", "lastTransitionTime": now}
        for kind in ("PodScheduled", "Initialized", "ContainersReady", "Ready")
    ]
    container = {"name": "main", "image": "app:1", "imageID": "i", "ready": True, "restartCount": 0}
    container["state"] = {"running": {"startedAt": now}}
    return {
        "phase": "Running",
        "podIP": ip,
        "podIPs": [{"ip": ip}],
        "startTime": now,
        "conditions": rows,
        "containerStatuses": [container],
    }


def terminated_pod_status(phase, code, finished=None):
    now = (finished or datetime.now(UTC)).strftime("%Y-%m-%dT%H:%M:%SZ")
    state = {"terminated": {"exitCode": code, "reason": "Error" if code else "Completed", "finishedAt": now}}
    container = {"name": "main", "image": "app:1", "imageID": "i", "ready": False, "restartCount": 0}
    return {"phase": phase, "startTime": now, "containerStatuses": [{**container, "state": state}]}


class FakeKubelet(BackgroundThread):
    """Runs every pod of a namespace as soon as it exists."""

    def __init__(self, kubeconfig, namespace) -> None:
        super().__init__()
        self._kubeconfig, self._namespace = kubeconfig, namespace

    def run(self):
        with api_client(self._kubeconfig) as api:
            objects = Objects(api)
            while not self.stop.wait(0.05):
                for pod in objects.list("Pod", namespace=self._namespace).items:
                    if status_of(pod).get("phase") == "Pending":
                        self._mark_running(objects, pod["metadata"])

    def _mark_running(self, objects, pod):
        with suppress(ObjectConflictError):  # it went meanwhile, and another has its name: that one is next
            objects.patch(
                "Pod",
                pod["name"],
                {"status": running_pod_status()},
                namespace=self._namespace,
                uid=pod["uid"],
                subresource="status",
            )
