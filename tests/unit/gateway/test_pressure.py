"""Which node's disk counts, and what is told of it."""

from __future__ import annotations

import pytest

from holdfast.errors import DiskFullError
from holdfast.gateway import pressure
from holdfast.gateway.settings import resolve
from holdfast.gateway.work import Work
from holdfast.kube.reach import Answer

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
def test_only_the_gateways_own_node_counts(nodes, found):
    assert pressure.pressure_on(nodes, "holdfast-dev") == found


def test_where_nobody_can_say_nothing_is_told(tmp_path, monkeypatch):
    monkeypatch.setenv("HOLDFAST_HOME", str(tmp_path))
    work = Work("dev", resolve({}))
    assert pressure.short_of_disk(work) is None
    work.files.kubeconfig.parent.mkdir(parents=True)
    work.files.kubeconfig.write_text("no kubeconfig")
    assert pressure.short_of_disk(work) is None


def test_it_says_what_is_wrong_and_what_helps(tmp_path, monkeypatch):
    monkeypatch.setenv("HOLDFAST_HOME", str(tmp_path))
    work = Work("dev", resolve({}))
    body = b'{"items": [{"metadata": {"name": "n"}, "status": {"conditions": [%s]}}]}'
    row = b'{"type": "DiskPressure", "status": "True", "lastTransitionTime": "T", "message": "low"}'
    monkeypatch.setattr(pressure, "ask_kubernetes", lambda *_: Answer(body % row, ""))
    told = pressure.short_of_disk(work)
    assert isinstance(told, DiskFullError)
    assert "DiskPressure since T: low" in told.message
    assert "holdfast restart dev" in told.hint
