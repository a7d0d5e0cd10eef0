"""The step that records a gateway on this machine."""

from types import SimpleNamespace

import pytest

from holdfast import home
from holdfast.gateway import UpOptions
from holdfast.gateway.connection import WriteMetadata
from holdfast.gateway.registry import active_gateway, set_active_gateway
from holdfast.gateway.settings import Settings
from holdfast.gateway.spec import GatewaySpec


@pytest.fixture(autouse=True)
def own_home(tmp_path, monkeypatch):
    monkeypatch.setenv("HOLDFAST_HOME", str(tmp_path))


def step_of(name, **options):
    """The step for a gateway on this machine whose container publishes port 1."""
    gateway = SimpleNamespace(
        name=name,
        options=UpOptions(**options),
        settings=Settings(),
        host=SimpleNamespace(remote=""),
        engine=SimpleNamespace(address="unix:///engine.sock", engine_id="1"),
        published_spec=lambda: GatewaySpec(name=name, image="i", port=1, gateway_port=2),
        container=lambda: None,
    )
    return WriteMetadata(gateway)


def record(name, **options):
    notes = []
    step_of(name, **options).run(SimpleNamespace(note=notes.append))
    return notes


def test_first_gateway_becomes_active():
    assert record("a") == ["a is the active gateway"]
    assert active_gateway() == "a"
    assert step_of("a").probe(None).state == "done"


def test_another_gateway_does_not_become_active():
    record("a")
    assert record("b") == ["b is recorded"]
    assert active_gateway() == "a"


def test_recorded_inactive_gateway_has_nothing_to_change():
    record("a")
    record("b")
    assert step_of("b").probe(None).state == "done"


def test_gateway_becomes_active_if_requested():
    record("a")
    record("b")
    probed = step_of("b", use=True).probe(None)
    assert (probed.state, probed.reason) == ("partial", "not the active gateway")
    record("b", use=True)
    assert active_gateway() == "b"


@pytest.mark.parametrize("content", [b"\xff\xfe", b"removed-since\n"], ids=["no text", "no record"])
def test_invalid_active_gateway_is_replaced(content):
    record("a")
    set_active_gateway("a")
    (home.config_dir() / "active").write_bytes(content)
    assert step_of("a").probe(None).state == "partial"
    record("a")
    assert active_gateway() == "a"
