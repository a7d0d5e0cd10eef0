"""`Gateway.push_sandbox_image`: which images are pushed, and what a failed push means."""

import pytest

from holdfast.errors import ContainerEngineError
from holdfast.events import EventBus
from holdfast.gateway import Gateway, commands
from holdfast.gateway.commands import GatewayResult


@pytest.fixture
def pushes(monkeypatch):
    """Record each push; the local container engine has every image."""
    recorded = []

    def push(name, references, bus):
        assert isinstance(bus, EventBus)
        recorded.append((name, references))
        return GatewayResult(name=name, run="r", changed=(), pushed=tuple(references))

    monkeypatch.setattr(commands, "push", push)
    return recorded


@pytest.mark.parametrize("image", ["holdfast/sandbox:1", "holdfast/sandbox-full:1"])
def test_own_image_is_pushed(pushes, image):
    assert Gateway("dev").push_sandbox_image(image)
    assert pushes == [("dev", [image])]


@pytest.mark.parametrize(
    "image",
    ["python:3.13", "example.com/holdfast/sandbox:1", "holdfast/node:1", "holdfast/sandbox-fuller:1", ""],
)
def test_other_images_are_not_pushed(pushes, image):
    assert not Gateway("dev").push_sandbox_image(image)
    assert pushes == []


def test_failed_push_is_raised(monkeypatch):
    def push(name, references, bus):
        raise ContainerEngineError("no such image")

    monkeypatch.setattr(commands, "push", push)
    with pytest.raises(ContainerEngineError, match="no such image"):
        Gateway("dev").push_sandbox_image("holdfast/sandbox:1")


def test_image_already_in_gateway_is_not_a_push(monkeypatch):
    monkeypatch.setattr(
        commands, "push", lambda name, references, bus: GatewayResult(name=name, run="r", changed=())
    )
    assert not Gateway("dev").push_sandbox_image("holdfast/sandbox:1")
