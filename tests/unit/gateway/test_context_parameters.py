"""What the history of runs records about the call of a command."""

from __future__ import annotations

import pytest

from holdfast.gateway.context import GatewayContext, UpOptions
from holdfast.gateway.settings import resolve_settings


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("HOLDFAST_HOME", str(tmp_path))


def test_defaults_are_no_parameters():
    assert GatewayContext("dev", resolve_settings(environ={})).parameters() == {}


def test_settings_of_all_sources_and_options_are_parameters(tmp_path):
    (tmp_path / "holdfast.toml").write_text("[timeouts]\nnode_ready = 60\n")
    environ = {"HOLDFAST_IMAGE": "some/node:1"}
    resolved = resolve_settings({"port": 6443}, environ=environ, cwd=tmp_path)
    parameters = GatewayContext("dev", resolved, UpOptions(wipe=True)).parameters()
    assert parameters == {"image": "some/node:1", "port": 6443, "timeouts.node_ready": 60.0, "wipe": True}


def test_login_is_recorded_by_its_reference_only():
    environ = {"HOLDFAST_REGISTRIES_CREDENTIALS": "reg.example=env:LOGIN", "LOGIN": "me:hunter2-hunter2"}
    parameters = GatewayContext("dev", resolve_settings(environ=environ)).parameters()
    assert parameters == {"registries.credentials": {"reg.example": "env:LOGIN"}}
