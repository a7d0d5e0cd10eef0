"""`holdfast.Gateway`: thin over the commands, and as strict as they are."""

import inspect

import pytest

from holdfast import Gateway
from holdfast.errors import BadSettingError, EngineUnreachableError, IllegalNameError
from holdfast.gateway.spec import Metadata, write_metadata


@pytest.fixture(autouse=True)
def home(monkeypatch, tmp_path):
    monkeypatch.setenv("HOLDFAST_HOME", str(tmp_path))
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/none.sock")


def test_a_bad_name_is_refused_when_it_is_given():
    with pytest.raises(IllegalNameError):
        Gateway("no/slashes")


def test_it_asks_nobody_until_a_command_is_called():
    dev = Gateway("dev")
    assert dev.kubeconfig.name == "kubeconfig"
    assert not dev.kubeconfig.exists()
    with pytest.raises(EngineUnreachableError):
        dev.status()


def test_settings_are_given_by_their_keys():
    with pytest.raises(BadSettingError) as caught:
        Gateway("dev").plan(timeouts__no_such=1)
    assert "timeouts.no_such" in caught.value.message


def test_the_listener_hears_of_a_run():
    heard = []
    with pytest.raises(EngineUnreachableError):
        Gateway("dev", listener=heard.append).destroy(data=True)
    assert type(heard[0]).__name__ == "RunStarted"


def test_the_known_ones_are_those_that_are_remembered():
    assert Gateway.known() == []
    write_metadata(Metadata(name="dev", image="i", port=1))
    assert [repr(found) for found in Gateway.known()] == ["<gateway dev>"]


def test_every_command_has_a_docstring_and_types():
    for name, method in inspect.getmembers(Gateway, inspect.isfunction):
        if not name.startswith("_"):
            assert method.__doc__
            assert "return" in method.__annotations__
