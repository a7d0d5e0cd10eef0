"""`connect`: errors of an engine that does not answer. `copy_image`: verification of the copy."""

import socket
import threading
from types import SimpleNamespace

import pytest

from holdfast.containers import ContainerEngine, is_transient
from holdfast.containers.client import EngineEndpoint
from holdfast.errors import ContainerEngineError, ContainerEngineUnreachableError, HostAccessError
from holdfast.remote import connect_over_ssh, parse_target
from holdfast.remote.container_engine import connect, copy_image


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


@pytest.fixture
def forwarded_socket(tmp_path):
    """The local end of a forwarded socket: ssh accepts each connection and then closes it."""
    path = tmp_path / "engine.sock"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen()

        def close_connections():
            while True:
                try:
                    listener.accept()[0].close()
                except OSError:
                    return

        threading.Thread(target=close_connections, daemon=True).start()
        yield f"unix://{path}"
        listener.shutdown(socket.SHUT_RDWR)


def host_with_log(address, *logs, is_own=True):
    """A fake ssh host whose connection writes these logs, one after the other."""
    remaining, closed = list(logs), []
    master = SimpleNamespace(
        read_log=lambda: remaining.pop(0), close=lambda: closed.append(True), is_own=is_own
    )
    target = parse_target("me@far")
    return SimpleNamespace(
        target=target, control_master=master, closed=closed, forward_engine_socket=lambda: address
    )


REFUSED = "channel 1: open failed: connect failed: open failed\n"


def test_refused_engine_socket_needs_a_person_and_a_new_connection(forwarded_socket):
    host = host_with_log(forwarded_socket, "banner\n", f"banner\n{REFUSED}")
    with pytest.raises(HostAccessError, match="me@far: the engine's socket cannot be opened") as raised:
        connect_over_ssh(host, timeout=5)
    assert raised.value.exit_code == 3
    for word in ("AllowStreamLocalForwarding", "AllowTcpForwarding", "systemctl start docker"):
        assert word in raised.value.hint
    assert host.closed == [True]
    assert not is_transient(raised.value)


def test_refusal_does_not_close_the_connection_of_another_command(forwarded_socket):
    host = host_with_log(forwarded_socket, "banner\n", f"banner\n{REFUSED}", is_own=False)
    with pytest.raises(HostAccessError):
        connect_over_ssh(host, timeout=5)
    assert host.closed == []


def test_cut_connection_is_temporary_after_an_earlier_refusal(forwarded_socket):
    host = host_with_log(forwarded_socket, REFUSED, REFUSED)
    with pytest.raises(ContainerEngineError, match="was cut"):
        connect_over_ssh(host, timeout=5)
    assert host.closed == []


class FakeDockerClient:
    """The calls of `copy_image`, for an engine with one image."""

    def __init__(self, image_id, layers):
        self.image = {"Id": image_id, "Size": 3, "RootFS": {"Type": "layers", "Layers": layers}}
        self.loaded = b""

    def inspect_image(self, reference):
        return self.image

    def get_image(self, reference):
        return iter([b"abc"])

    def load_image(self, archive):
        self.loaded = b"".join(archive)
        return iter([{"stream": "Loaded image"}])


def copy(target_layers):
    """Copy an image between an engine with the classic image store and one with that of containerd."""
    source = ContainerEngine(FakeDockerClient("sha256:config", ["sha256:a", "sha256:b"]), "unix:///a")
    client = FakeDockerClient("sha256:manifest", target_layers)
    is_copied = copy_image(
        lambda: source,
        ContainerEngine(client, "unix:///b"),
        "app:1",
        lambda image: None,
        lambda message, fraction: None,
    )
    return is_copied, client.loaded


def test_copied_image_may_have_another_id():
    assert copy(["sha256:a", "sha256:b"]) == (True, b"abc")


def test_copied_image_without_all_layers_is_incomplete():
    with pytest.raises(ContainerEngineError, match="unexpected EOF"):
        copy(["sha256:a"])
