"""Output of `holdfast status`."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner
from tests.support.stubs import stub

from holdfast.cli import cli
from holdfast.cli.output import run_command
from holdfast.cli.status import status
from holdfast.gateway import commands
from holdfast.gateway.registry import GatewayMetadata, write_metadata
from holdfast.gateway.status import GatewayStatus

NOTE = "network policies exist (default/shut), but this gateway's network does not enforce them"


@pytest.fixture
def status_with_note(monkeypatch):
    monkeypatch.setattr(
        commands, "status", lambda name: GatewayStatus(name=name, state="ready", node="n", notes=(NOTE,))
    )


@pytest.fixture
def absent_status(monkeypatch, tmp_path):
    monkeypatch.setenv("HOLDFAST_HOME", str(tmp_path))
    stub(monkeypatch, commands, "status", lambda name: GatewayStatus(name=name, state="absent", node="n"))


def test_unrecorded_gateway_that_does_not_exist_is_an_error(absent_status, capsys):
    assert run_command(cli, ["status", "ghost"]) == 2
    output = capsys.readouterr()
    assert output.out == ""
    assert "gateway ghost: not found [unknown-gateway]" in output.err


def test_recorded_gateway_that_does_not_exist_is_absent(absent_status, capsys):
    write_metadata(GatewayMetadata(name="dev", image="i", port=1))
    assert run_command(cli, ["status", "dev"]) == 1
    assert "state       absent" in capsys.readouterr().out.splitlines()


def test_notes_are_separate_lines_and_gateway_stays_ready(status_with_note):
    result = CliRunner().invoke(status, ["dev"])
    assert result.exit_code == 0
    assert result.output.splitlines()[-1] == f"note        {NOTE}"


def test_json_contains_notes(status_with_note):
    result = CliRunner().invoke(status, ["dev", "--json"])
    assert json.loads(result.output)["notes"] == [NOTE]


def test_addresses_of_both_apis_are_shown(monkeypatch):
    addresses = {"server": "https://127.0.0.1:26443", "api": "https://127.0.0.1:26444"}
    monkeypatch.setattr(
        commands, "status", lambda name: GatewayStatus(name=name, state="ready", node="n", **addresses)
    )
    lines = CliRunner().invoke(status, ["dev"]).output.splitlines()
    assert "server      https://127.0.0.1:26443" in lines
    assert "api         https://127.0.0.1:26444" in lines
