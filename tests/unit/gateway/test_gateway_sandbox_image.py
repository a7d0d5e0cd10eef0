"""`Gateway.push_sandbox_image`: which images are pushed, and what a failed push means."""

import pytest

from holdfast.errors import ContainerEngineError, LockedError
from holdfast.events import EventBus
from holdfast.gateway import Gateway, commands
from holdfast.gateway.commands import GatewayResult
from holdfast.retry import testing_mode


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


def test_push_waits_for_another_command(monkeypatch):
    attempts = []

    def push(name, references, bus):
        attempts.append(name)
        if len(attempts) < 4:
            raise LockedError("another run is in progress")
        return GatewayResult(name=name, run="r", changed=())

    monkeypatch.setattr(commands, "push", push)
    with testing_mode():
        assert Gateway("dev").push_sandbox_image("holdfast/sandbox:1")
    assert len(attempts) == 4


def test_image_that_another_command_has_pushed_is_in_the_gateway(monkeypatch):
    monkeypatch.setattr(
        commands, "push", lambda name, references, bus: GatewayResult(name=name, run="r", changed=())
    )
    assert Gateway("dev").push_sandbox_image("holdfast/sandbox:1")
