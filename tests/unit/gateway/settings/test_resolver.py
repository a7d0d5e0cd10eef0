"""Precedence of flag, variable, file and default, and the source of each value."""

import inspect
import os
import re
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

import holdfast
from holdfast.errors import ContainerEngineUnreachableError, InvalidSettingError
from holdfast.gateway.connection import WaitApiReady
from holdfast.gateway.context import GatewayContext, UpOptions
from holdfast.gateway.hosts import ssh_timeouts
from holdfast.gateway.settings import (
    AttemptSettings,
    Settings,
    TimeoutSettings,
    explain_settings,
    resolve_settings,
)
from holdfast.gateway.settings.models import setting_fields
from holdfast.gateway.settings.resolver import find_files
from holdfast.remote import SshTimeouts, connect

REFERENCE = Path(__file__).resolve().parents[4] / "docs" / "reference" / "settings.md"
STRANGER = 54321


@pytest.fixture(autouse=True)
def own_home(tmp_path, monkeypatch):
    monkeypatch.setenv("HOLDFAST_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


@pytest.fixture
def project(tmp_path):
    folder = tmp_path / "project"
    folder.mkdir()
    return folder


def write(folder, text):
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "holdfast.toml"
    path.write_text(text)
    return path


def test_defaults_match_specification(project):
    settings = resolve_settings(environ={}, cwd=project).settings
    assert settings == Settings()
    waits = settings.timeouts
    assert (waits.api, waits.namespace, waits.rollout, waits.health) == (60, 180, 180, 360)
    assert settings.attempts.start == 5
    assert (settings.listen, settings.port, settings.workspace.size) == ("127.0.0.1", "auto", "2Gi")


def test_source_precedence(project, own_home):
    environ = {"HOLDFAST_PORT": "3"}
    write(own_home / "config", "port = 1\nlisten = '10.0.0.1'\n[attempts]\npull = 9\npush = 9")
    assert resolve_settings(environ={}, cwd=project).settings.port == 1
    write(project, "port = 2\n[attempts]\npull = 8")
    assert resolve_settings(environ={}, cwd=project).settings.port == 2
    assert resolve_settings(environ=environ, cwd=project).settings.port == 3
    found = resolve_settings({"port": 4, "listen": None}, environ=environ, cwd=project).settings
    assert (found.port, found.listen) == (4, "10.0.0.1")
    assert (found.attempts.pull, found.attempts.push, found.attempts.start) == (8, 9, 5)


def test_each_value_has_source(project, own_home):
    own = write(own_home / "config", "[timeouts]\nhealth = 500\napi = 61")
    near = write(project, "[timeouts]\napi = 62")
    environ = {"HOLDFAST_TIMEOUTS_STOP": "1m"}
    resolved = resolve_settings({"port": "auto"}, environ=environ, cwd=project)
    explained = {
        setting.key: (setting.value, setting.source, setting.where) for setting in explain_settings(resolved)
    }
    assert explained["port"] == ("auto", "flag", "the command line")
    assert explained["timeouts.stop"] == (60.0, "environment", "HOLDFAST_TIMEOUTS_STOP")
    assert explained["timeouts.api"] == (62.0, "file", str(near))
    assert explained["timeouts.health"] == (500.0, "file", str(own))
    assert explained["timeouts.namespace"] == (180.0, "default", "default")


def test_nearest_file_is_found_upward(project):
    deep = project / "a" / "b"
    deep.mkdir(parents=True)
    write(project, "port = 1")
    assert resolve_settings(environ={}, cwd=deep).settings.port == 1
    write(deep.parent, "listen = '10.0.0.2'")
    found = resolve_settings(environ={}, cwd=deep).settings
    assert (found.port, found.listen) == ("auto", "10.0.0.2")


def test_search_stops_at_home_directory(project, tmp_path):
    write(tmp_path, "port = 1")
    inside = project / "inside"
    inside.mkdir()
    assert resolve_settings(environ={"HOME": str(project)}, cwd=inside).settings.port == "auto"
    assert resolve_settings(environ={"HOME": str(tmp_path)}, cwd=inside).settings.port == 1
    link = tmp_path / "link"
    link.symlink_to(project)
    assert resolve_settings(environ={"HOME": str(link)}, cwd=inside).settings.port == "auto"


def test_explicit_file(project, tmp_path):
    write(project, "port = 1")
    (tmp_path / "other.toml").write_text("port = 2")
    environ = {"HOLDFAST_SETTINGS": "../other.toml"}
    assert resolve_settings(environ=environ, cwd=project).settings.port == 2
    for missing in ("gone.toml", "~nosuchuser/gone.toml"):
        with pytest.raises(InvalidSettingError, match=r"gone\.toml: cannot read"):
            resolve_settings(environ={"HOLDFAST_SETTINGS": missing}, cwd=project)


def test_world_writable_file_is_ignored_unless_explicit(project):
    path = write(project, "image = 'planted:1'")
    path.chmod(0o666)
    with pytest.raises(InvalidSettingError) as caught:
        resolve_settings(environ={}, cwd=project)
    assert str(path) in caught.value.message
    assert (
        resolve_settings(environ={"HOLDFAST_SETTINGS": str(path)}, cwd=project).settings.image == "planted:1"
    )


def test_file_replaced_before_it_is_read_is_rejected(project, monkeypatch):
    """Another user replaces the file after the search has found it."""
    path = write(project, "port = 1")
    open_file = Path.open

    def replace_and_open(self, mode):
        self.chmod(0o666)
        return open_file(self, mode)

    monkeypatch.setattr(Path, "open", replace_and_open)
    with pytest.raises(InvalidSettingError, match=f"{path}: owned by another user, or writable"):
        resolve_settings(environ={}, cwd=project)


def test_file_of_other_user_is_ignored(project, monkeypatch):
    path = write(project, "port = 1")
    if os.geteuid() == 0:
        os.chown(path, STRANGER, -1)
        assert resolve_settings(environ={"SUDO_UID": str(STRANGER)}, cwd=project).settings.port == 1
    else:
        monkeypatch.setattr(os, "geteuid", lambda: STRANGER)
    with pytest.raises(InvalidSettingError, match="another user"):
        resolve_settings(environ={}, cwd=project)


def test_file_in_config_directory_is_read_once(own_home):
    path = write(own_home / "config", "port = 7")
    assert find_files({}, path.parent) == [path]


def test_removed_working_directory_is_tolerated(monkeypatch):
    def gone():
        raise FileNotFoundError

    monkeypatch.setattr(Path, "cwd", gone)
    assert resolve_settings(environ={}).settings.port == "auto"


def test_lists_and_tables_come_from_one_source(project):
    write(project, "push_images = ['a:1', 'b:1']\n[registries]\ninsecure = ['one.example']")
    environ = {"HOLDFAST_PUSH_IMAGES": "c:1, d:1,,c:1"}
    found = resolve_settings(environ=environ, cwd=project).settings
    assert found.push_images == ("c:1", "d:1")
    assert found.registries.insecure == ("one.example",)
    assert resolve_settings({"push_images": []}, environ=environ, cwd=project).settings.push_images == ()


def test_empty_variable_is_ignored(project):
    environ = {"HOLDFAST_PORT": "", "HOLDFAST_IMAGE": "  ", "HOLDFAST_SETTINGS": ""}
    assert resolve_settings(environ=environ, cwd=project).settings == Settings()


def test_relative_paths_resolve_against_their_source(project, own_home):
    write(own_home / "config", "[registries.ca_files]\n'reg.example' = 'ca.pem'")
    found = resolve_settings(environ={}, cwd=project).settings.registries
    assert found.ca_files == {"reg.example": str(own_home / "config" / "ca.pem")}
    environ = {"HOLDFAST_REGISTRIES_CA_FILES": "reg.example=../ca.pem"}
    assert resolve_settings(environ=environ, cwd=project).settings.registries.ca_files == {
        "reg.example": str(project.parent / "ca.pem")
    }


def test_reference_documents_every_setting():
    text = REFERENCE.read_text()
    for field in setting_fields().values():
        default = field.default
        shown = (
            ""
            if default in (None, "", (), {})
            else f"`{default:g}`"
            if isinstance(default, float)
            else f"`{default}`"
        )
        row = f"| `{field.key}` | `{field.variable}` | {shown} | {field.description} |"
        assert row in text
        assert field.value_type.allowed in text


def test_every_timeout_and_count_is_used():
    root = Path(holdfast.__file__).parent
    source = "\n".join(path.read_text() for path in root.rglob("*.py") if path.parent.name != "settings")
    for key in setting_fields():
        group, _, name = key.partition(".")
        if group in ("timeouts", "attempts"):
            assert re.search(rf'{group}\.{name}\b|^    {group}_setting = "{name}"', source, re.MULTILINE), key


def test_api_wait_and_stop_use_configured_timeouts(own_home):
    gateway = GatewayContext("x", resolve_settings({"timeouts.api": 7, "timeouts.stop": 2.5}, environ={}))
    assert WaitApiReady(gateway).policy.deadline == 7
    assert gateway.stop_seconds == 3


def test_host_uses_configured_timeouts(own_home):
    flags = {"timeouts.ssh": 90, "timeouts.engine": 120, "attempts.engine_call": 7}
    far = GatewayContext("x", resolve_settings(flags, environ={}), UpOptions(remote="me@far")).host
    assert ssh_timeouts(resolve_settings(flags, environ={}).settings) == SshTimeouts(total=90, attempts=7)
    for master in (far.tunnel.control_master, far._host.control_master):
        assert master._timeouts == SshTimeouts(total=90, attempts=7)
    usual = TimeoutSettings()
    assert SshTimeouts() == SshTimeouts(total=usual.ssh, attempts=AttemptSettings().engine_call), (
        "one default"
    )
    assert inspect.signature(connect).parameters["timeout"].default == usual.engine


def test_engine_call_uses_configured_timeout(own_home, monkeypatch, tmp_path):
    """A real socket that takes the call and never answers."""
    path = tmp_path / "engine.sock"
    monkeypatch.setenv("DOCKER_HOST", f"unix://{path}")
    gateway = GatewayContext("x", resolve_settings({"timeouts.engine": 1}, environ={}))
    with socket.socket(socket.AF_UNIX) as silent:
        silent.bind(str(path))
        silent.listen()
        began = time.monotonic()
        with pytest.raises(ContainerEngineUnreachableError):
            _ = gateway.engine
    assert time.monotonic() - began < 20, "the default is 60"


def test_settings_import_only_models():
    code = (
        "import sys, holdfast.gateway.settings.resolver as s;"
        "s.resolve_settings({'image': 'a:1', 'api_names': 'x.example'}, environ={}).settings;"
        "print(*{name.partition('.')[0] for name in sys.modules})"
    )
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert "msgspec" in loaded.split()
    assert not {"docker", "kubernetes", "requests", "cryptography", "sqlite3", "asyncio"} & set(
        loaded.split()
    )
