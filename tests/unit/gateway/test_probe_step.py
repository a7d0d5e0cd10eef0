"""When the probe pod runs, and what it may do."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from holdfast.gateway.settings import resolve
from holdfast.gateway.steps import probe
from holdfast.gateway.steps.health import WaitHealthy
from holdfast.gateway.work import Work


def step(monkeypatch, container, **settings):
    work = Work("dev", resolve(settings))
    monkeypatch.setattr(work, "container", lambda: container)
    return probe.RunProbe(work)


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
def test_it_runs_once_for_each_start_of_the_container(monkeypatch, previous, now, state):
    found = step(monkeypatch, now).probe(SimpleNamespace(previous=previous))
    assert found.state == state


def test_without_workloads_it_needs_nothing_of_ours(monkeypatch):
    plain = step(monkeypatch, container(), workloads=False)
    assert (plain.namespace, plain.needs) == ("default", ("wait-api-ready",))
    whole = step(monkeypatch, container(), namespace="mine")
    assert (whole.namespace, whole.needs) == ("mine", ("ensure-namespace",))


def test_the_pod_has_no_more_rights_than_it_needs():
    spec = probe._pod()["spec"]
    (main,) = spec["containers"]
    assert spec["automountServiceAccountToken"] is False
    assert spec["securityContext"]["runAsNonRoot"] is True
    assert main["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    assert main["imagePullPolicy"] == "Never"


def test_a_storage_class_is_named_only_where_one_is_set():
    assert "storageClassName" not in probe._claim("")["spec"]
    assert probe._claim("fast")["spec"]["storageClassName"] == "fast"


@pytest.mark.parametrize(
    ("workloads", "needs"),
    [(True, ("wait-rollout", "write-client-files")), (False, ("wait-api-ready",))],
)
def test_health_waits_for_what_there_is(workloads, needs):
    assert WaitHealthy(Work("dev", resolve({"workloads": workloads}))).needs == needs
