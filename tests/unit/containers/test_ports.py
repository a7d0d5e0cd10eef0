"""Ports of this machine, with real sockets."""

import socket

import pytest

from holdfast.containers import ports
from holdfast.errors import PortTakenError


@pytest.fixture
def listener():
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()
        yield server.getsockname()[1]


def test_a_listening_port_is_taken(listener):
    assert ports.is_taken(listener)


def test_its_process_is_named(listener):
    import os

    assert f"process {os.getpid()}" in (ports._listening_process(listener) or "")


def test_auto_passes_over_taken_and_reserved_ports(monkeypatch, listener):
    monkeypatch.setattr(ports, "FIRST_PORT", listener)
    monkeypatch.setattr(ports, "LAST_PORT", listener + 50)
    found = ports.free_port(reserved=range(listener + 1, listener + 3))
    assert found > listener + 2


def test_no_free_port_is_a_clear_error(monkeypatch, listener):
    monkeypatch.setattr(ports, "FIRST_PORT", listener)
    monkeypatch.setattr(ports, "LAST_PORT", listener)
    with pytest.raises(PortTakenError) as caught:
        ports.free_port()
    assert "--port" in caught.value.hint
