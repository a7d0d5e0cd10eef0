"""`connect`: errors of an engine that does not answer."""

import pytest

from holdfast.containers.client import EngineEndpoint
from holdfast.errors import ContainerEngineUnreachableError
from holdfast.remote.container_engine import connect


def test_missing_socket_error_has_start_hint(monkeypatch, tmp_path):
    monkeypatch.delenv("DOCKER_HOST", raising=False)
    endpoint = EngineEndpoint(address=f"unix://{tmp_path}/none.sock")
    monkeypatch.setattr("holdfast.remote.container_engine.engine_endpoint", lambda: endpoint)
    with pytest.raises(ContainerEngineUnreachableError) as raised:
        connect()
    assert "none.sock" in raised.value.message
    assert "dockerd" in raised.value.hint
    assert raised.value.exit_code == 3


def test_wrong_docker_host_is_named(monkeypatch, tmp_path):
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/none.sock")
    with pytest.raises(ContainerEngineUnreachableError) as raised:
        connect()
    assert "DOCKER_HOST" in raised.value.hint


def test_malformed_docker_host_is_an_error_without_traceback(monkeypatch):
    monkeypatch.setenv("DOCKER_HOST", "carrier-pigeon://loft")
    with pytest.raises(ContainerEngineUnreachableError):
        connect()
