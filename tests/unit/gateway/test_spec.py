"""What is remembered of gateways between commands."""

import stat

import pytest

from holdfast.errors import DamagedFileError, IllegalNameError, UnknownGatewayError
from holdfast.gateway import spec


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("HOLDFAST_HOME", str(tmp_path))
    return tmp_path


def remember(name):
    spec.write_metadata(spec.Metadata(name=name, image="i", port=1))


def test_metadata_is_private_and_read_back_as_it_was(home):
    remember("dev")
    path = spec.GatewayFiles("dev").metadata
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert path.is_relative_to(home)
    assert spec.read_metadata("dev") == spec.Metadata(name="dev", image="i", port=1)


def test_damaged_metadata_is_named_with_the_way_out():
    path = spec.GatewayFiles("dev").metadata
    path.parent.mkdir(parents=True)
    path.write_text('{"name": "dev", "port": "many"}')
    with pytest.raises(DamagedFileError) as caught:
        spec.read_metadata("dev")
    assert str(path) in caught.value.message
    assert "holdfast up dev" in caught.value.hint


def test_a_command_without_a_name_means_the_active_gateway():
    remember("a")
    remember("b")
    spec.set_active("b")
    assert spec.resolve_name(None) == "b"
    assert spec.resolve_name("a") == "a"


def test_a_command_without_a_name_means_the_only_gateway():
    remember("a")
    assert spec.resolve_name(None) == "a"


def test_with_several_gateways_and_none_active_the_names_are_said():
    remember("a")
    remember("b")
    with pytest.raises(UnknownGatewayError) as caught:
        spec.resolve_name(None)
    assert "a, b" in caught.value.hint


def test_up_without_a_name_and_without_gateways_means_the_default():
    assert spec.resolve_name(None, for_up=True) == spec.DEFAULT_NAME


def test_names_cannot_lead_out_of_the_home():
    with pytest.raises(IllegalNameError):
        spec.GatewayFiles("../../etc")


def damage_active(how):
    spec.set_active("a")
    path = spec.home.config_dir() / "active"
    if how == "no text":
        path.write_bytes(b"\xff\xfe")
    else:
        path.unlink()
        path.mkdir()


@pytest.mark.parametrize("how", ["no text", "a folder"])
def test_an_active_file_that_cannot_be_read_is_told_and_stands_in_nobodys_way(how):
    remember("a")
    damage_active(how)
    with pytest.raises(DamagedFileError, match="active"):
        spec.resolve_name(None)
    assert spec.resolve_name("a") == "a"
    assert not spec.is_active("a")
    spec.forget("a")
    assert spec.known_gateways() == []


def test_forgetting_the_active_gateway_makes_the_last_one_left_active():
    remember("a")
    remember("b")
    spec.set_active("a")
    spec.forget("a")
    assert spec.active_name() == "b"
    assert [gateway.name for gateway in spec.known_gateways()] == ["b"]


def test_a_neighbour_that_cannot_be_read_keeps_nobody_from_being_forgotten():
    remember("a")
    remember("b")
    spec.set_active("a")
    spec.GatewayFiles("b").metadata.write_text("{")
    spec.forget("a")
    assert spec.active_name() == "b"
    assert not spec.is_remembered("a")
    assert (spec.known_names(), spec.known_gateways()) == (["b"], [])


@pytest.mark.parametrize("left", ["mtls", "kubeconfig", "metadata", "active"])
def test_whatever_a_killed_forget_left_is_found_and_removed(left):
    files = spec.GatewayFiles("a")
    files.folder.mkdir(parents=True)
    if left == "mtls":
        files.mtls.mkdir()
        (files.mtls / "current").symlink_to("generation-1")
    elif left == "active":
        spec.set_active("a")
    else:
        getattr(files, left).write_text("x")
    assert spec.is_remembered("a")
    spec.forget("a")
    assert not spec.is_remembered("a")
    assert not files.folder.exists()
    assert spec.active_name() is None
