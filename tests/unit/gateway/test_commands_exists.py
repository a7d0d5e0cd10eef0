"""Whether there is anything of a gateway that `destroy` removes."""

import pytest
from tests.support.stubs import stub

from holdfast.gateway import GatewayContext, commands
from holdfast.gateway.registry import GatewayMetadata, write_metadata
from holdfast.gateway.tunnel import Tunnel
from holdfast.remote import parse_target

KINDS = ("container", "parked_container", "network", "volume")


@pytest.fixture(autouse=True)
def own_home(tmp_path, monkeypatch):
    monkeypatch.setenv("HOLDFAST_HOME", str(tmp_path))
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/none.sock")


@pytest.mark.parametrize("kind", KINDS)
def test_gateway_with_one_remaining_object_exists(monkeypatch, kind):
    for each in KINDS:
        stub(monkeypatch, GatewayContext, each, lambda _gateway: None)
    assert not commands.exists("a")
    stub(monkeypatch, GatewayContext, kind, lambda _gateway: object())
    assert commands.exists("a")


def test_recorded_gateway_exists_without_an_engine():
    write_metadata(GatewayMetadata(name="a", image="i", port=1))
    assert commands.exists("a")


def test_gateway_with_recorded_host_exists_without_its_host():
    """A killed `destroy` has left the record of the host only."""
    Tunnel("a", parse_target("me@far")).save_if_new()
    assert commands.exists("a")
