"""Which node's DiskPressure condition counts, and the error for it."""

from __future__ import annotations

import pytest
from tests.support.stubs import stub

from holdfast.errors import DiskFullError
from holdfast.gateway.context import GatewayContext
from holdfast.gateway.node import readiness
from holdfast.gateway.settings import resolve_settings
from holdfast.kube import HttpsResponse

FULL = {"type": "DiskPressure", "status": "True", "lastTransitionTime": "T", "message": "kubelet has it"}
FREE = {**FULL, "status": "False"}
READY = {"type": "Ready", "status": "True"}


def node(name, *conditions):
    return {"metadata": {"name": name}, "status": {"conditions": list(conditions)}}


@pytest.mark.parametrize(
    ("nodes", "found"),
    [
        ([], None),
        ([{"metadata": {"name": "holdfast-dev"}}], None),
        ([node("holdfast-dev", READY, FREE)], None),
        ([node("holdfast-dev", READY, FULL)], FULL),
        ([node("of another time", FULL)], FULL),
        ([node("holdfast-dev", READY), node("worker", FULL)], None),
        ([node("worker", READY), node("holdfast-dev", FULL)], FULL),
    ],
)
def test_only_own_node_counts(nodes, found):
    assert readiness.find_disk_pressure(nodes, "holdfast-dev") == found


def test_unknown_condition_reports_nothing(tmp_path, monkeypatch):
    monkeypatch.setenv("HOLDFAST_HOME", str(tmp_path))
    gateway = GatewayContext("dev", resolve_settings({}))
    assert readiness.disk_pressure_error(gateway) is None
    gateway.files.kubeconfig.parent.mkdir(parents=True)
    gateway.files.kubeconfig.write_text("no kubeconfig")
    assert readiness.disk_pressure_error(gateway) is None


def test_error_names_problem_and_hint(tmp_path, monkeypatch):
    monkeypatch.setenv("HOLDFAST_HOME", str(tmp_path))
    gateway = GatewayContext("dev", resolve_settings({}))
    body = b'{"items": [{"metadata": {"name": "n"}, "status": {"conditions": [%s]}}]}'
    row = b'{"type": "DiskPressure", "status": "True", "lastTransitionTime": "T", "message": "low"}'
    stub(monkeypatch, readiness, "kubernetes_get", lambda *_: HttpsResponse(body % row, ""))
    told = readiness.disk_pressure_error(gateway)
    assert isinstance(told, DiskFullError)
    assert "DiskPressure since T: low" in told.message
    assert "holdfast restart dev" in told.hint
