"""What the wait for health says while it waits."""

from __future__ import annotations

import pytest

from holdfast.errors import EngineCallError
from holdfast.gateway.settings import resolve
from holdfast.gateway.steps import health
from holdfast.gateway.work import Work


@pytest.fixture
def waiting(tmp_path, monkeypatch):
    monkeypatch.setenv("HOLDFAST_HOME", str(tmp_path))
    monkeypatch.setattr(Work, "engine", None)
    monkeypatch.setattr(Work, "container", lambda _: object())
    return health.WaitHealthy(Work("dev", resolve({"workloads": "false"})))


def test_the_nodes_last_line_stands_behind_what_is_waited_for(waiting, monkeypatch):
    asked = []
    monkeypatch.setattr(health, "container_logs", lambda *_, tail: asked.append(tail) or "etcd is up\n")
    assert waiting._live("not ready") == "not ready | etcd is up"
    assert asked == [1]


def test_an_engine_that_does_not_say_it_ends_no_wait(waiting, monkeypatch):
    def refuse(*_, **__):
        raise EngineCallError("reset")

    monkeypatch.setattr(health, "container_logs", refuse)
    assert waiting._live("not ready") == "not ready | (the engine did not say what it printed: reset)"
