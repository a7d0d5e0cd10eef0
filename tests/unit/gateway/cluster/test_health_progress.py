"""What the wait for health says while it waits."""

from __future__ import annotations

import pytest
from tests.support.stubs import stub

from holdfast.errors import ContainerEngineError
from holdfast.gateway.cluster import health
from holdfast.gateway.context import GatewayContext
from holdfast.gateway.settings import resolve_settings


@pytest.fixture
def wait_healthy_step(tmp_path, monkeypatch):
    monkeypatch.setenv("HOLDFAST_HOME", str(tmp_path))
    monkeypatch.setattr(GatewayContext, "engine", None)
    monkeypatch.setattr(GatewayContext, "container", lambda _: object())
    return health.WaitHealthy(GatewayContext("dev", resolve_settings({"workloads": "false"})))


def test_wait_message_includes_last_node_log_line(wait_healthy_step, monkeypatch):
    asked = []
    stub(monkeypatch, health, "container_logs", lambda *_, tail: asked.append(tail) or "etcd is up\n")
    assert wait_healthy_step._progress_message("not ready") == "not ready | etcd is up"
    assert asked == [1]


def test_unanswered_engine_query_does_not_end_wait(wait_healthy_step, monkeypatch):
    def refuse(*_, **__):
        raise ContainerEngineError("reset")

    monkeypatch.setattr(health, "container_logs", refuse)
    assert (
        wait_healthy_step._progress_message("not ready")
        == "not ready | (cannot read the container log: reset)"
    )
