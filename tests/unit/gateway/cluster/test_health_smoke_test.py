"""When the smoke test runs, and what its pod may do."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from holdfast.errors import (
    ContainerEngineError,
    DiskFullError,
    NodeStoppedError,
    WaitFailedError,
    WaitTimeoutError,
)
from holdfast.gateway.cluster import RunSmokeTest, WaitHealthy, health
from holdfast.gateway.context import GatewayContext
from holdfast.gateway.plan import up_steps
from holdfast.gateway.settings import resolve_settings


def step(monkeypatch, container, **settings):
    gateway = GatewayContext("dev", resolve_settings(settings))
    monkeypatch.setattr(gateway, "container", lambda: container)
    return RunSmokeTest(gateway)


def asked_with(previous=None):
    return SimpleNamespace(
        previous_result=previous,
        is_preview=False,
        stop=None,
        retry=lambda policy: policy,
        note=lambda said: None,
        progress=lambda said: None,
    )


def container(id_="c1", started="2026-01-01"):
    return SimpleNamespace(id=id_, started_at=started)


@pytest.mark.parametrize(
    ("previous", "now", "state"),
    [
        (None, container(), "absent"),
        ({"container": "c1", "started": "2026-01-01"}, container(), "done"),
        ({"container": "c1", "started": "2026-01-01"}, container(started="2026-01-02"), "absent"),
        ({"container": "c1", "started": "2026-01-01"}, container("c2"), "absent"),
        ({}, None, "absent"),
    ],
)
def test_smoke_test_runs_once_per_container_start(monkeypatch, previous, now, state):
    found = step(monkeypatch, now).probe(asked_with(previous))
    assert found.state == state


def test_restart_during_the_smoke_test_is_not_the_tested_start(monkeypatch):
    tested = step(monkeypatch, container())
    monkeypatch.setattr(tested, "_delete_objects", lambda ctx, deadline, *, wait: None)

    def restart_node(ctx, deadline):
        monkeypatch.setattr(tested.gateway, "container", lambda: container(started="2026-01-02"))

    monkeypatch.setattr(tested, "_run_pod", restart_node)
    result = tested.run(asked_with())
    assert result == {"container": "c1", "started": "2026-01-01"}
    assert tested.probe(asked_with(result)).state == "absent"


def test_smoke_test_reruns_under_disk_pressure(monkeypatch):
    monkeypatch.setattr(health, "disk_pressure_error", lambda gateway: DiskFullError("too full"))
    found = step(monkeypatch, container()).probe(asked_with({"container": "c1", "started": "2026-01-01"}))
    assert (found.state, found.reason) == ("absent", "the node is under disk pressure")


def test_without_workloads_needs_no_holdfast_objects(monkeypatch):
    plain = step(monkeypatch, container(), workloads=False)
    assert (plain.namespace, plain.needs) == ("default", ("wait-api-ready",))
    whole = step(monkeypatch, container(), namespace="mine")
    assert (whole.namespace, whole.needs) == ("mine", ("ensure-namespace",))


def test_pod_has_minimal_privileges():
    spec = health._pod_manifest()["spec"]
    (main,) = spec["containers"]
    assert spec["automountServiceAccountToken"] is False
    assert spec["securityContext"]["runAsNonRoot"] is True
    assert main["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    assert main["imagePullPolicy"] == "Never"


def test_storage_class_is_set_only_if_configured():
    assert "storageClassName" not in health._pvc_manifest("")["spec"]
    assert health._pvc_manifest("fast")["spec"]["storageClassName"] == "fast"


@pytest.mark.parametrize(
    ("workloads", "needs"),
    [(True, ("wait-rollout", "write-client-files", "write-host-settings")), (False, ("wait-api-ready",))],
)
def test_health_waits_for_installed_components(workloads, needs):
    steps = up_steps(GatewayContext("dev", resolve_settings({"workloads": workloads})))
    (step,) = [step for step in steps if isinstance(step, WaitHealthy)]
    assert set(step.needs) == {"wait-node-ready", *needs}


def faltering(times, then):
    """The engine's answer after some calls whose connection was cut."""
    left = [ContainerEngineError("connection reset by peer")] * times

    def look():
        if left:
            raise left.pop()
        return then

    return look


def test_engine_probe_is_retried(monkeypatch):
    found = step(monkeypatch, container())
    monkeypatch.setattr(found.gateway, "container", faltering(2, container()))
    assert found.probe(asked_with()).state == "absent"
    monkeypatch.setattr(found.gateway, "container", faltering(99, container()))
    with pytest.raises(ContainerEngineError):
        found.probe(asked_with())


def wait_healthy(monkeypatch, ask, **settings):
    found = WaitHealthy(
        GatewayContext("dev", resolve_settings({"workloads": False, "timeouts.health": 1, **settings}))
    )
    monkeypatch.setattr(found, "_check_all", ask)
    monkeypatch.setattr(found.gateway, "container", lambda: None)
    return found


def test_health_wait_survives_engine_errors(monkeypatch):
    said = []
    ctx = asked_with()
    ctx.note = said.append
    wait_healthy(monkeypatch, faltering(2, "well")).run(ctx)
    assert said == ["well"]
    with pytest.raises(WaitTimeoutError, match=r"not healthy within 1 s.*connection reset"):
        wait_healthy(monkeypatch, faltering(999, "well")).run(asked_with())


@pytest.mark.parametrize("kind", [NodeStoppedError, WaitFailedError])
def test_connection_error_in_node_log_is_not_retried(monkeypatch, kind):
    calls = []

    def ask():
        calls.append(1)
        raise kind("it ended:\n    dial tcp: connection refused")

    with pytest.raises(kind):
        wait_healthy(monkeypatch, ask).run(asked_with())
    assert len(calls) == 1
