"""A machine that manages a remote gateway needs no container engine, if the node has its images."""

from types import SimpleNamespace

import pytest

from holdfast.errors import ContainerEngineUnreachableError
from holdfast.gateway.context import GatewayContext, UpOptions
from holdfast.gateway.hosts import LocalHost
from holdfast.gateway.image_push import PushGatewayImage, PushImages
from holdfast.gateway.settings import resolve_settings


@pytest.fixture
def context(tmp_path, monkeypatch):
    """A function that returns the context of a gateway on a machine without an engine."""
    monkeypatch.setenv("HOLDFAST_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/nowhere.sock")

    def create(remote):
        settings = resolve_settings({}, environ={}, cwd=tmp_path)
        return GatewayContext("dev", settings, UpOptions(remote=remote))

    return create


def test_remote_gateway_keeps_its_gateway_image(context):
    result = PushGatewayImage(context("me@far")).probe(None)
    assert (result.state, result.reason) == (
        "done",
        "not on this machine's engine; the node keeps the image it has",
    )


def test_local_gateway_needs_its_engine(context):
    with pytest.raises(ContainerEngineUnreachableError):
        PushGatewayImage(context(None)).probe(None)


def test_named_images_need_the_local_engine(context):
    with pytest.raises(ContainerEngineUnreachableError):
        PushImages(context("me@far"), ("app:1",)).probe(None)


def test_local_engine_is_connected_once(context, monkeypatch):
    connected = []

    def engine(host):
        connected.append(host)
        return SimpleNamespace()

    monkeypatch.setattr(LocalHost, "engine", engine)
    gateway = context("me@far")
    assert gateway.local_engine is gateway.local_engine
    assert len(connected) == 1
