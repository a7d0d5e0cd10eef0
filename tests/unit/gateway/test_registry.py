"""What is remembered of gateways between commands."""

import stat

import pytest

from holdfast.errors import CorruptFileError, GatewayNotFoundError, InvalidGatewayNameError
from holdfast.gateway import registry


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("HOLDFAST_HOME", str(tmp_path))
    monkeypatch.delenv("HOLDFAST_GATEWAY", raising=False)
    return tmp_path


def remember(name):
    registry.write_metadata(registry.GatewayMetadata(name=name, image="i", port=1))


def test_metadata_is_private_and_round_trips(home):
    remember("dev")
    path = registry.GatewayFiles("dev").metadata
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert path.is_relative_to(home)
    assert registry.read_metadata("dev") == registry.GatewayMetadata(name="dev", image="i", port=1)


def test_corrupted_metadata_is_reported_with_hint():
    path = registry.GatewayFiles("dev").metadata
    path.parent.mkdir(parents=True)
    path.write_text('{"name": "dev", "port": "many"}')
    with pytest.raises(CorruptFileError) as caught:
        registry.read_metadata("dev")
    assert str(path) in caught.value.message
    assert "holdfast up dev" in caught.value.hint


def test_default_is_active_gateway():
    remember("a")
    remember("b")
    registry.set_active_gateway("b")
    assert registry.resolve_gateway_name(None) == "b"
    assert registry.resolve_gateway_name("a") == "a"


def test_default_is_only_gateway():
    remember("a")
    assert registry.resolve_gateway_name(None) == "a"


def test_variable_precedes_active_gateway_and_explicit_name_precedes_both(monkeypatch):
    remember("a")
    remember("b")
    registry.set_active_gateway("b")
    monkeypatch.setenv("HOLDFAST_GATEWAY", "a")
    assert registry.resolve_gateway_name(None) == "a"
    assert registry.resolve_gateway_name(None, for_up=True) == "a"
    assert registry.resolve_gateway_name("b") == "b"
    monkeypatch.setenv("HOLDFAST_GATEWAY", " ")
    assert registry.resolve_gateway_name(None) == "b"


def test_invalid_name_in_variable_is_reported_with_the_variable(monkeypatch):
    monkeypatch.setenv("HOLDFAST_GATEWAY", "../etc")
    with pytest.raises(InvalidGatewayNameError, match="HOLDFAST_GATEWAY: gateway name"):
        registry.resolve_gateway_name(None)


@pytest.mark.parametrize("for_up", [False, True])
def test_several_gateways_without_active_lists_names_and_creates_none(for_up):
    remember("a")
    remember("b")
    with pytest.raises(GatewayNotFoundError) as caught:
        registry.resolve_gateway_name(None, for_up=for_up)
    assert "a, b" in caught.value.hint


def test_up_without_active_gateway_uses_only_gateway():
    remember("a")
    assert registry.resolve_gateway_name(None, for_up=True) == "a"


def test_up_without_gateways_uses_default_name():
    assert registry.resolve_gateway_name(None, for_up=True) == registry.DEFAULT_GATEWAY_NAME


def test_use_activates_only_recorded_gateways():
    remember("a")
    registry.use_gateway("a")
    assert registry.active_gateway() == "a"
    with pytest.raises(GatewayNotFoundError, match="gateway b: not found"):
        registry.use_gateway("b")
    assert registry.active_gateway() == "a"


@pytest.mark.parametrize("name", ["b", "../etc", ""])
def test_name_without_record_is_no_active_gateway(name):
    remember("a")
    registry.set_active_gateway(name)
    assert not registry.has_active_gateway()


def test_names_cannot_escape_home():
    with pytest.raises(InvalidGatewayNameError):
        registry.GatewayFiles("../../etc")


def damage_active(how):
    registry.set_active_gateway("a")
    path = registry.home.config_dir() / "active"
    if how == "no text":
        path.write_bytes(b"\xff\xfe")
    else:
        path.unlink()
        path.mkdir()


@pytest.mark.parametrize("how", ["no text", "a folder"])
def test_unreadable_active_file_is_reported_and_not_fatal(how):
    remember("a")
    damage_active(how)
    with pytest.raises(CorruptFileError, match="active"):
        registry.resolve_gateway_name(None)
    assert registry.resolve_gateway_name("a") == "a"
    assert not registry.is_active_gateway("a")
    registry.remove_local_files("a")
    assert registry.known_gateways() == []


def test_removing_active_gateway_activates_last_remaining():
    remember("a")
    remember("b")
    registry.set_active_gateway("a")
    registry.remove_local_files("a")
    assert registry.active_gateway() == "b"
    assert [gateway.name for gateway in registry.known_gateways()] == ["b"]


def test_unreadable_other_gateway_does_not_block_removal():
    remember("a")
    remember("b")
    registry.set_active_gateway("a")
    registry.GatewayFiles("b").metadata.write_text("{")
    registry.remove_local_files("a")
    assert registry.active_gateway() == "b"
    assert not registry.has_local_files("a")
    assert (registry.known_gateway_names(), registry.known_gateways()) == (["b"], [])


@pytest.mark.parametrize("left", ["mtls", "kubeconfig", "metadata", "active"])
def test_leftovers_of_killed_removal_are_removed(left):
    files = registry.GatewayFiles("a")
    files.directory.mkdir(parents=True)
    if left == "mtls":
        files.mtls.mkdir()
        (files.mtls / "current").symlink_to("generation-1")
    elif left == "active":
        registry.set_active_gateway("a")
    else:
        getattr(files, left).write_text("x")
    assert registry.has_local_files("a")
    registry.remove_local_files("a")
    assert not registry.has_local_files("a")
    assert not files.directory.exists()
    assert registry.active_gateway() is None
