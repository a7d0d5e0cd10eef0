"""`holdfast use` and `holdfast destroy`."""

import json

import pytest
from tests.support.stubs import stub

from holdfast.cli import cli, start_stop
from holdfast.cli.output import run_command
from holdfast.gateway import GatewayContext, GatewayFiles, registry


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("HOLDFAST_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/none.sock")
    monkeypatch.delenv("HOLDFAST_GATEWAY", raising=False)
    return tmp_path / "home"


@pytest.fixture
def two_gateways():
    for name in ("a", "b"):
        registry.write_metadata(registry.GatewayMetadata(name=name, image="i", port=1))


@pytest.fixture
def empty_engine(monkeypatch):
    """An engine without objects of gateways."""
    for kind in ("container", "parked_container", "network", "volume"):
        stub(monkeypatch, GatewayContext, kind, lambda _gateway: None)


def test_use_prints_and_changes_the_active_gateway(two_gateways, capsys):
    assert [run_command(cli, ["use", *words]) for words in ([], ["b"], [], ["-g", "a"])] == [0, 0, 0, 0]
    assert capsys.readouterr().out.splitlines() == [
        "No gateway is active.", "Gateway b is active.", "b", "Gateway a is active.",
    ]  # fmt: skip
    assert run_command(cli, ["use", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"active": "a"}


def test_use_of_unknown_gateway_is_one_error(two_gateways, capsys):
    assert run_command(cli, ["use", "ghost"]) == 2
    assert "gateway ghost: not found [unknown-gateway]" in capsys.readouterr().err
    assert registry.active_gateway() is None


def test_use_reports_that_the_variable_takes_precedence(two_gateways, monkeypatch, capsys):
    monkeypatch.setenv("HOLDFAST_GATEWAY", "b")
    assert run_command(cli, ["use", "a"]) == 0
    output = capsys.readouterr()
    assert (output.out, output.err) == (
        "Gateway a is active.\n",
        "HOLDFAST_GATEWAY=b takes precedence.\n",
    )


def test_use_changes_nothing_if_the_variable_is_invalid(two_gateways, monkeypatch, capsys):
    monkeypatch.setenv("HOLDFAST_GATEWAY", "../a")
    assert run_command(cli, ["use", "a"]) == 2
    assert "HOLDFAST_GATEWAY" in capsys.readouterr().err
    assert registry.active_gateway() is None


def test_destroy_of_unknown_gateway_fails_before_it_asks_and_creates_nothing(
    empty_engine, home, monkeypatch, capsys
):
    def unexpected(*_, **__):
        raise AssertionError("asked for confirmation")

    stub(monkeypatch, start_stop, "confirm_by_name", unexpected)
    assert run_command(cli, ["destroy", "ghost", "--data"]) == 2
    assert "gateway ghost: not found [unknown-gateway]" in capsys.readouterr().err
    assert not home.exists()


def test_repeated_destroy_succeeds(empty_engine, capsys):
    """A destroy that was killed after its last step can be repeated: its store is still there."""
    state = GatewayFiles("gone").state
    state.parent.mkdir(parents=True)
    state.touch()
    assert run_command(cli, ["destroy", "gone", "--yes", "gone"]) == 0
    assert capsys.readouterr().out == "Gateway gone does not exist.\n"
