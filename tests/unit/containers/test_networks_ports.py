"""Ports of this machine, with real sockets."""

import os
import socket
from pathlib import Path

import pytest

from holdfast.containers import networks
from holdfast.errors import PortInUseError


@pytest.fixture
def listener():
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()
        yield server.getsockname()[1]


def test_listening_port_is_taken(listener):
    assert networks.is_port_taken(listener)


def test_process_that_listens_is_named(listener):
    assert f"process {os.getpid()}" in (networks.listening_process(listener) or "")


def test_free_port_skips_taken_and_reserved_ports(listener):
    reserved = range(listener + 1, listener + 3)
    assert networks.free_port(reserved=reserved, ports=range(listener, listener + 50)) > listener + 2


def test_free_port_of_another_machine():
    assert networks.free_port(reserved={5}, is_taken={6, 7}.__contains__, ports=range(5, 10)) == 8


def test_no_free_port_is_an_error(listener):
    with pytest.raises(PortInUseError) as raised:
        networks.free_port(ports=range(listener, listener + 1))
    assert "--port" in raised.value.hint


def test_listening_ports_are_read_from_proc():
    columns = "00:00000000 00000000 0 0"
    table = (
        "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n"
        f"   0: 0100007F:674B 00000000:0000 0A 00000000:00000000 {columns} 101 1\n"
        f"   1: 0100007F:674C 0100007F:9999 01 00000000:00000000 {columns} 102 1\n"
        f"   2: {'0' * 24}01000000:1F90 00000000:0000 0A 00000000:00000000 {columns} 103 1\n"
    )
    assert networks.parse_listeners(table) == {"101": ("127.0.0.1", 26443), "103": ("::1", 8080)}


@pytest.mark.parametrize(
    ("listening", "address", "is_occupied"),
    [
        ("127.0.0.1", "127.0.0.1", True),
        ("127.0.0.2", "127.0.0.1", False),
        ("192.0.2.7", "127.0.0.1", False),
        ("0.0.0.0", "127.0.0.1", True),
        ("::", "127.0.0.1", True),
        ("::1", "127.0.0.1", False),
        ("127.0.0.2", "0.0.0.0", True),
    ],
)
def test_listener_occupies_its_address_only(listening, address, is_occupied):
    listener = networks.ListeningSocket(listening, 80)
    assert listener.occupies(80, address) is is_occupied
    assert not listener.occupies(81, address)


@pytest.mark.parametrize("address", ["127.0.0.1", "127.0.0.9", "0.0.0.0", "::1", "::ffff:127.0.0.3", "::"])
def test_own_listener_is_found_in_proc(address):
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.socket(family) as server:
        server.bind((address, 0))
        server.listen()
        table = "".join(Path(f"/proc/net/{name}").read_text() for name in ("tcp", "tcp6"))
        expected = (address.removeprefix("::ffff:"), server.getsockname()[1])
        assert expected in networks.parse_listeners(table).values()
