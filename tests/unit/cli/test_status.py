"""What `holdfast status` prints of a gateway."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner

from holdfast.cli.inspection import status
from holdfast.gateway import commands
from holdfast.gateway.observation import GatewayStatus

NOTE = "network policies are there (default/shut), but this gateway's network does not enforce them"


@pytest.fixture
def seen(monkeypatch):
    monkeypatch.setattr(
        commands, "status", lambda name: GatewayStatus(name=name, state="ready", node="n", notes=(NOTE,))
    )


def test_notes_are_lines_of_their_own_and_leave_the_gateway_ready(seen):
    result = CliRunner().invoke(status, ["dev"])
    assert result.exit_code == 0
    assert result.output.splitlines()[-1] == f"note        {NOTE}"


def test_notes_are_in_the_json(seen):
    result = CliRunner().invoke(status, ["dev", "--json"])
    assert json.loads(result.output)["notes"] == [NOTE]
