"""`connect`: errors of an engine that does not answer. `copy_image`: verification of the copy."""

import pytest

from holdfast.containers import ContainerEngine
from holdfast.containers.client import EngineEndpoint
from holdfast.errors import ContainerEngineError, ContainerEngineUnreachableError
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
