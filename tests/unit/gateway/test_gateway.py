"""`holdfast.Gateway`: thin over the commands, and as strict as they are."""

import inspect

import pytest

from holdfast import Gateway
from holdfast.errors import (
    ContainerEngineUnreachableError,
    GatewayNotFoundError,
    InvalidGatewayNameError,
    InvalidSettingError,
)
from holdfast.gateway.registry import GatewayMetadata, write_metadata


@pytest.fixture(autouse=True)
def home(monkeypatch, tmp_path):
    monkeypatch.setenv("HOLDFAST_HOME", str(tmp_path))
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/none.sock")
    monkeypatch.delenv("HOLDFAST_GATEWAY", raising=False)


def test_invalid_name_is_rejected_on_construction():
    with pytest.raises(InvalidGatewayNameError):
        Gateway("no/slashes")


def test_gateway_without_name_is_that_of_the_variable_or_the_active_one(monkeypatch):
    assert Gateway().name == "default"
    for name in ("a", "b"):
        write_metadata(GatewayMetadata(name=name, image="i", port=1))
    with pytest.raises(GatewayNotFoundError):
        Gateway()
    Gateway("b").use()
    assert Gateway().name == "b"
    monkeypatch.setenv("HOLDFAST_GATEWAY", "a")
    assert Gateway().name == "a"


def test_constructor_makes_no_requests():
    dev = Gateway("dev")
    assert dev.kubeconfig.name == "kubeconfig"
    assert not dev.kubeconfig.exists()
    with pytest.raises(ContainerEngineUnreachableError):
        dev.status()


def test_settings_are_passed_by_key():
    with pytest.raises(InvalidSettingError) as caught:
        Gateway("dev").plan(settings={"timeouts.no_such": 1})
    assert "timeouts.no_such" in caught.value.message


def test_subscriber_receives_run_events():
    heard = []
    with pytest.raises(ContainerEngineUnreachableError):
        Gateway("dev", listener=heard.append).destroy(data=True)
    assert type(heard[0]).__name__ == "RunStarted"


def test_list_returns_registered_gateways():
    assert Gateway.all() == []
    write_metadata(GatewayMetadata(name="dev", image="i", port=1))
    assert [repr(found) for found in Gateway.all()] == ["<gateway dev>"]


def test_every_command_has_docstring_and_types():
    for name, method in inspect.getmembers(Gateway, inspect.isfunction):
        if not name.startswith("_"):
            assert method.__doc__
            assert "return" in method.__annotations__
