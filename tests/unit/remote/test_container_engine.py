"""`connect`: errors of an engine that does not answer; facts of a host."""

import pytest

from holdfast.containers.client import EngineEndpoint
from holdfast.errors import ContainerEngineUnreachableError
from holdfast.remote.container_engine import connect, parse_listening_ports


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


def test_listening_ports_are_read_from_proc():
    table = (
        "  sl  local_address rem_address   st tx_queue rx_queue\n"
        "   0: 0100007F:674B 00000000:0000 0A 00000000:00000000\n"
        "   1: 0100007F:674C 0100007F:9999 01 00000000:00000000\n"
        "   2: 00000000000000000000000001000000:1F90 00000000:0000 0A 00000000:00000000\n"
    )
    assert parse_listening_ports(table) == {26443, 8080}
