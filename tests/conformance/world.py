"""Scenarios on one API server: each runs once, several at the same time, and many rows observe its result."""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from tests.support.controller_process import (
    EVENTUALLY,
    SandboxNamespace,
    running_pod_status,
    terminated_pod_status,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.conformance.table import Seen

    from holdfast.testing.apiserver import KubeServer

SCENARIOS: dict[str, Callable[[World], Seen]] = {}
_CONCURRENT = 6
REPORTERS = {"Sandbox": "sandbox-controller", "SandboxClaim": "sandboxclaim-controller"}


class ImpatientNamespace(SandboxNamespace):
    """Waits no longer than a scenario may take."""

    def wait(self, kind: str, name: str, until: Any, seconds: float = 45) -> Any:
        return super().wait(kind, name, until, seconds)


class World:
    """Two namespaces of a controller: in `plain`, tests play the kubelet; in `running`, every pod runs."""

    def __init__(self, plain: SandboxNamespace, running: SandboxNamespace, server: KubeServer) -> None:
        self.plain, self.running, self._server = plain, running, server
        self.metrics: Callable[[], str] = str
        self._pool = ThreadPoolExecutor(_CONCURRENT)
        self._results: dict[str, Future[Seen]] = {}

    def start(self, names: list[str]) -> None:
        """Start scenarios; `seen` waits for their end."""
        for name in names:
            if name not in self._results:
                self._results[name] = self._pool.submit(SCENARIOS[name], self)

    def bind(self, ns: SandboxNamespace, pod: str, node: str) -> None:
        """Play the scheduler for one pod."""
        target = {"apiVersion": "v1", "kind": "Node", "name": node}
        body = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": pod}, "target": target}
        self._server.request("POST", f"/api/v1/namespaces/{ns.namespace}/pods/{pod}/binding", body)

    def seen(self, name: str) -> Seen:
        """What a scenario has observed."""
        self.start([name])
        return self._results[name].result()


def scenario(function: Callable[[World], Seen]) -> Callable[[World], Seen]:
    """Register a scenario under its name, with dashes."""
    SCENARIOS[function.__name__.replace("_", "-")] = function
    return function


def seconds_from_now(seconds: float) -> str:
    return (datetime.now(UTC) + timedelta(seconds=seconds)).strftime("%Y-%m-%dT%H:%M:%SZ")


def create_ready_sandbox(ns: SandboxNamespace, name: str, **options: Any) -> dict[str, Any]:
    """A sandbox whose pod runs."""
    ns.create_sandbox(name, **options)
    ns.wait("Pod", name, bool)
    set_pod_status(ns, name, running_pod_status())
    return ns.wait_conditions("Sandbox", name, Ready="True DependenciesReady")


def set_pod_status(ns: SandboxNamespace, name: str, status: dict[str, Any]) -> None:
    ns.patch("Pod", name, {"status": status}, subresource="status")


def finish_pod(ns: SandboxNamespace, name: str, phase: str, code: int) -> dict[str, Any]:
    """Let the pod of a sandbox end; returns the sandbox."""
    set_pod_status(ns, name, terminated_pod_status(phase, code))
    reason = {"Succeeded": "PodSucceeded", "Failed": "PodFailed"}[phase]
    return ns.wait_conditions("Sandbox", name, Ready=f"False {reason}")


def published_events(ns, about):
    """Reporter, kind, type, reason, action and note of the events about an object."""
    items = ns.objects.list("Event", namespace=ns.namespace, api_version="events.k8s.io/v1").items
    return {
        (
            one.get("reportingController"),
            one["regarding"]["kind"],
            one["type"],
            one["reason"],
            one.get("action"),
            one.get("note"),
        )
        for one in items
        if one["regarding"]["name"] == about and one["regarding"]["kind"] in REPORTERS
    }


def wait_events(ns, about, *reasons):
    """Wait for events with these reasons or actions; returns all about the object."""

    def until():
        found = published_events(ns, about)
        assert all(any(reason in row for row in found) for reason in reasons)
        return found

    return EVENTUALLY.call(until)
