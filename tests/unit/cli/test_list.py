"""What `holdfast list` prints of the gateways that this machine knows."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner

from holdfast.cli.inspection import list_gateways
from holdfast.gateway import spec


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("HOLDFAST_HOME", str(tmp_path))


def test_one_that_cannot_be_read_is_told_with_the_way_out_and_hides_no_other():
    for name in ("a", "b"):
        spec.write_metadata(spec.Metadata(name=name, image="i", port=1))
    spec.GatewayFiles("b").metadata.write_text("{")
    printed = CliRunner().invoke(list_gateways, [])
    assert printed.exit_code == 0
    assert [line.split()[0] for line in printed.output.splitlines()] == ["NAME", "a", "b:"]
    assert "holdfast doctor b --fix" in printed.output
    told = json.loads(CliRunner().invoke(list_gateways, ["--json"]).output)
    assert [gateway["name"] for gateway in told["gateways"]] == ["a"]
    assert told["damaged"] == ["b"]


def test_without_any_it_says_how_to_get_one():
    assert "holdfast up" in CliRunner().invoke(list_gateways, []).output
