"""When the probe pod runs, and what it may do."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from holdfast.errors import (
    DiskFullError,
    EngineCallError,
    NodeStoppedError,
    WaitFailedError,
    WaitTimeoutError,
)
from holdfast.gateway.settings import resolve
from holdfast.gateway.steps import probe
from holdfast.gateway.steps.health import WaitHealthy
from holdfast.gateway.work import Work


def step(monkeypatch, container, **settings):
    work = Work("dev", resolve(settings))
    monkeypatch.setattr(work, "container", lambda: container)
    return probe.RunProbe(work)


def asked_with(previous=None):
    return SimpleNamespace(
        previous=previous,
        previewing=False,
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
def test_it_runs_once_for_each_start_of_the_container(monkeypatch, previous, now, state):
    found = step(monkeypatch, now).probe(asked_with(previous))
    assert found.state == state


def test_it_runs_again_where_the_disk_is_too_full_by_now(monkeypatch):
    monkeypatch.setattr(probe, "short_of_disk", lambda work: DiskFullError("too full"))
    found = step(monkeypatch, container()).probe(asked_with({"container": "c1", "started": "2026-01-01"}))
    assert (found.state, found.reason) == ("absent", "the disk under the node is too full by now")


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


def faltering(times, then):
    """The engine's answer after some calls whose connection was cut."""
    left = [EngineCallError("connection reset by peer")] * times

    def look():
        if left:
            raise left.pop()
        return then

    return look


def test_a_look_at_the_engine_is_repeated(monkeypatch):
    found = step(monkeypatch, container())
    monkeypatch.setattr(found.work, "container", faltering(2, container()))
    assert found.probe(asked_with()).state == "absent"
    monkeypatch.setattr(found.work, "container", faltering(99, container()))
    with pytest.raises(EngineCallError):
        found.probe(asked_with())


def health(monkeypatch, ask, **settings):
    found = WaitHealthy(Work("dev", resolve({"workloads": False, "timeouts.health": 1, **settings})))
    monkeypatch.setattr(found, "_ask", ask)
    monkeypatch.setattr(found.work, "container", lambda: None)
    return found


def test_health_outlasts_an_engine_that_falters(monkeypatch):
    said = []
    ctx = asked_with()
    ctx.note = said.append
    health(monkeypatch, faltering(2, "well")).run(ctx)
    assert said == ["well"]
    with pytest.raises(WaitTimeoutError, match=r"not healthy within 1 s.*connection reset"):
        health(monkeypatch, faltering(999, "well")).run(asked_with())


@pytest.mark.parametrize("kind", [NodeStoppedError, WaitFailedError])
def test_words_in_a_log_do_not_make_health_wait(monkeypatch, kind):
    calls = []

    def ask():
        calls.append(1)
        raise kind("it ended:\n    dial tcp: connection refused")

    with pytest.raises(kind):
        health(monkeypatch, ask).run(asked_with())
    assert len(calls) == 1
