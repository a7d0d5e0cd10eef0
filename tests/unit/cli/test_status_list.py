"""Output of `holdfast list`."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner

from holdfast.cli.status import list_gateways
from holdfast.gateway import registry


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("HOLDFAST_HOME", str(tmp_path))


def test_unreadable_gateway_is_reported_with_hint_and_others_are_listed():
    for name in ("a", "b"):
        registry.write_metadata(registry.GatewayMetadata(name=name, image="i", port=1))
    registry.GatewayFiles("b").metadata.write_text("{")
    result = CliRunner().invoke(list_gateways, [])
    assert result.exit_code == 0
    assert [line.split()[0] for line in result.output.splitlines()] == ["NAME", "a", "b:"]
    assert "holdfast doctor b --fix" in result.output
    output = json.loads(CliRunner().invoke(list_gateways, ["--json"]).output)
    assert [gateway["name"] for gateway in output["gateways"]] == ["a"]
    assert output["damaged"] == ["b"]


def test_empty_list_prints_up_hint():
    assert "holdfast up" in CliRunner().invoke(list_gateways, []).output
