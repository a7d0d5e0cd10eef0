"""Flag beats variable beats file beats default, and every value can say where it is from."""

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
from holdfast.containers.engine import connect
from holdfast.containers.ssh_master import Patience
from holdfast.errors import BadSettingError, EngineUnreachableError
from holdfast.gateway.place import patience_of
from holdfast.gateway.settings import Attempts, Settings, Timeouts, explain, load, resolve
from holdfast.gateway.steps.kubeconfig import WaitApiReady
from holdfast.gateway.work import Asked, Work

REFERENCE = Path(__file__).resolve().parents[3] / "docs" / "reference" / "settings.md"
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


def test_the_defaults_are_those_of_the_specification(project):
    settings = load(environ={}, cwd=project)
    assert settings == Settings()
    waits = settings.timeouts
    assert (waits.api, waits.namespace, waits.rollout, waits.health) == (60, 180, 180, 360)
    assert settings.attempts.start == 5
    assert (settings.listen, settings.port, settings.workspace.size) == ("127.0.0.1", "auto", "2Gi")


def test_each_source_beats_the_next(project, own_home):
    environ = {"HOLDFAST_PORT": "3"}
    write(own_home / "config", "port = 1\nlisten = '10.0.0.1'\n[attempts]\npull = 9\npush = 9")
    assert load(environ={}, cwd=project).port == 1
    write(project, "port = 2\n[attempts]\npull = 8")
    assert load(environ={}, cwd=project).port == 2
    assert load(environ=environ, cwd=project).port == 3
    found = load({"port": 4, "listen": None}, environ=environ, cwd=project)
    assert (found.port, found.listen) == (4, "10.0.0.1")
    assert (found.attempts.pull, found.attempts.push, found.attempts.start) == (8, 9, 5)


def test_each_value_says_where_it_is_from(project, own_home):
    own = write(own_home / "config", "[timeouts]\nhealth = 500\napi = 61")
    near = write(project, "[timeouts]\napi = 62")
    environ = {"HOLDFAST_TIMEOUTS_STOP": "1m"}
    resolved = resolve({"port": "auto"}, environ=environ, cwd=project)
    told = {setting.key: (setting.value, setting.source, setting.where) for setting in explain(resolved)}
    assert told["port"] == ("auto", "flag", "the command line")
    assert told["timeouts.stop"] == (60.0, "environment", "HOLDFAST_TIMEOUTS_STOP")
    assert told["timeouts.api"] == (62.0, "file", str(near))
    assert told["timeouts.health"] == (500.0, "file", str(own))
    assert told["timeouts.namespace"] == (180.0, "default", "default")
    assert resolved.files == (str(near), str(own))


def test_the_nearest_file_counts_and_is_looked_for_upward(project):
    deep = project / "a" / "b"
    deep.mkdir(parents=True)
    write(project, "port = 1")
    assert load(environ={}, cwd=deep).port == 1
    write(deep.parent, "listen = '10.0.0.2'")
    found = load(environ={}, cwd=deep)
    assert (found.port, found.listen) == ("auto", "10.0.0.2")


def test_nobody_looks_above_the_home_folder(project, tmp_path):
    write(tmp_path, "port = 1")
    inside = project / "inside"
    inside.mkdir()
    assert load(environ={"HOME": str(project)}, cwd=inside).port == "auto"
    assert load(environ={"HOME": str(tmp_path)}, cwd=inside).port == 1
    link = tmp_path / "link"
    link.symlink_to(project)
    assert load(environ={"HOME": str(link)}, cwd=inside).port == "auto"


def test_a_file_can_be_named(project, tmp_path):
    write(project, "port = 1")
    (tmp_path / "other.toml").write_text("port = 2")
    environ = {"HOLDFAST_SETTINGS": "../other.toml"}
    assert load(environ=environ, cwd=project).port == 2
    with pytest.raises(BadSettingError, match=r"gone\.toml cannot be read"):
        load(environ={"HOLDFAST_SETTINGS": "gone.toml"}, cwd=project)


def test_a_file_that_everybody_may_write_is_not_taken_unless_named(project):
    path = write(project, "image = 'planted:1'")
    path.chmod(0o666)
    with pytest.raises(BadSettingError) as caught:
        load(environ={}, cwd=project)
    assert str(path) in caught.value.message
    assert load(environ={"HOLDFAST_SETTINGS": str(path)}, cwd=project).image == "planted:1"


def test_a_file_of_another_user_is_not_taken(project, monkeypatch):
    path = write(project, "port = 1")
    if os.geteuid() == 0:
        os.chown(path, STRANGER, -1)
        assert load(environ={"SUDO_UID": str(STRANGER)}, cwd=project).port == 1
    else:
        monkeypatch.setattr(os, "geteuid", lambda: STRANGER)
    with pytest.raises(BadSettingError, match="another user"):
        load(environ={}, cwd=project)


def test_the_file_in_the_configuration_folder_counts_once(own_home):
    path = write(own_home / "config", "port = 7")
    assert resolve(environ={}, cwd=path.parent).files == (str(path),)


def test_a_folder_that_was_removed_under_us_does_not_matter(monkeypatch):
    def gone():
        raise FileNotFoundError

    monkeypatch.setattr(Path, "cwd", gone)
    assert load(environ={}).port == "auto"


def test_lists_and_tables_come_as_a_whole_from_one_source(project):
    write(project, "push_images = ['a:1', 'b:1']\n[registries]\ninsecure = ['one.example']")
    environ = {"HOLDFAST_PUSH_IMAGES": "c:1, d:1,,c:1"}
    found = load(environ=environ, cwd=project)
    assert found.push_images == ("c:1", "d:1")
    assert found.registries.insecure == ("one.example",)
    assert load({"push_images": []}, environ=environ, cwd=project).push_images == ()


def test_an_empty_variable_says_nothing(project):
    environ = {"HOLDFAST_PORT": "", "HOLDFAST_IMAGE": "  ", "HOLDFAST_SETTINGS": ""}
    assert load(environ=environ, cwd=project) == Settings()


def test_relative_paths_start_where_they_were_written(project, own_home):
    write(own_home / "config", "[registries.ca_files]\n'reg.example' = 'ca.pem'")
    found = load(environ={}, cwd=project).registries
    assert found.ca_files == {"reg.example": str(own_home / "config" / "ca.pem")}
    environ = {"HOLDFAST_REGISTRIES_CA_FILES": "reg.example=../ca.pem"}
    assert load(environ=environ, cwd=project).registries.ca_files == {
        "reg.example": str(project.parent / "ca.pem")
    }


def test_the_reference_names_every_setting_with_variable_default_and_words(project):
    text = REFERENCE.read_text()
    for setting in explain(resolve(environ={}, cwd=project)):
        default = setting.default
        shown = (
            ""
            if default in (None, "", (), {})
            else f"`{default:g}`"
            if isinstance(default, float)
            else f"`{default}`"
        )
        row = f"| `{setting.key}` | `{setting.variable}` | {shown} | {setting.description} |"
        assert row in text
        assert f"takes {setting.allowed}" in text


def test_no_time_or_count_can_be_set_that_nobody_reads(project):
    root = Path(holdfast.__file__).parent
    source = "\n".join(
        path.read_text() for path in root.rglob("*.py") if not path.name.startswith("settings_")
    )
    for setting in explain(resolve(environ={}, cwd=project)):
        group, _, name = setting.key.partition(".")
        if group in ("timeouts", "attempts"):
            assert re.search(rf'{group}\.{name}\b|^    {group} = "{name}"', source, re.MULTILINE), setting.key


def test_the_wait_for_the_api_and_the_stop_have_the_times_that_are_set(own_home):
    work = Work("x", resolve({"timeouts.api": 7, "timeouts.stop": 2.5}, environ={}))
    assert WaitApiReady(work).policy.deadline == 7
    assert work.stop_seconds == 3


def test_a_place_has_the_times_that_are_set(own_home):
    flags = {"timeouts.ssh": 90, "timeouts.engine": 120, "attempts.engine_call": 7}
    far = Work("x", resolve(flags, environ={}), Asked(remote="me@far")).place
    assert patience_of(load(flags, environ={})) == Patience(seconds=90, attempts=7)
    for master in (far.tunnel.master, far._host.master):
        assert master._patience == Patience(seconds=90, attempts=7)
    usual = Timeouts()
    assert Patience() == Patience(seconds=usual.ssh, attempts=Attempts().engine_call), "one default"
    assert inspect.signature(connect).parameters["timeout"].default == usual.engine


def test_a_call_to_the_engine_ends_in_the_time_that_is_set(own_home, monkeypatch, tmp_path):
    """A real socket that takes the call and never answers."""
    path = tmp_path / "engine.sock"
    monkeypatch.setenv("DOCKER_HOST", f"unix://{path}")
    work = Work("x", resolve({"timeouts.engine": 1}, environ={}))
    with socket.socket(socket.AF_UNIX) as silent:
        silent.bind(str(path))
        silent.listen()
        began = time.monotonic()
        with pytest.raises(EngineUnreachableError):
            _ = work.engine
    assert time.monotonic() - began < 20, "the default is 60"


def test_settings_load_nothing_but_the_models():
    code = (
        "import sys, holdfast.gateway.settings as s;"
        "s.load({'image': 'a:1', 'api_names': 'x.example'}, environ={});"
        "print(*{name.partition('.')[0] for name in sys.modules})"
    )
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert "msgspec" in loaded.split()
    assert not {"docker", "kubernetes", "requests", "cryptography", "sqlite3", "asyncio"} & set(
        loaded.split()
    )
