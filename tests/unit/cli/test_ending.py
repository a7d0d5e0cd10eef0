"""How commands end: one clear line, the right exit code, never a traceback."""

import errno
import json

import click
import pytest

from holdfast.cli import cli
from holdfast.cli.ending import exit_code_of
from holdfast.errors import CancelledError, LockedError, PermanentError, TemporaryError, UsageError


def command_that_raises(error):
    @click.command()
    @click.option("--json", "as_json", is_flag=True)
    def command(as_json):
        raise error

    return command


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (TemporaryError("a"), 1),
        (UsageError("a"), 2),
        (PermanentError("a"), 3),
        (LockedError("a"), 4),
        (CancelledError("a"), 130),
        (KeyboardInterrupt(), 130),
        (click.Abort(), 130),
        (click.UsageError("a"), 2),
        (RuntimeError("a defect"), 1),
    ],
)
def test_every_error_has_its_exit_code_and_no_traceback(error, code, capsys):
    assert exit_code_of(command_that_raises(error), []) == code
    shown = capsys.readouterr()
    assert shown.out == ""
    assert "Traceback" not in shown.err
    assert shown.err.strip()


def test_an_error_says_what_its_code_and_what_to_do(capsys):
    exit_code_of(command_that_raises(PermanentError("it broke", hint="Mend it.")), [])
    assert "it broke [permanent]" in capsys.readouterr().err


def test_with_json_an_error_is_one_object(capsys):
    exit_code_of(command_that_raises(PermanentError("it broke", hint="Mend it.")), ["--json"])
    told = json.loads(capsys.readouterr().err)
    assert told == {
        "event": "error",
        "code": "permanent",
        "error": "it broke",
        "hint": "Mend it.",
        "exit_code": 3,
    }


def test_a_defect_says_where_its_trace_is(capsys):
    exit_code_of(command_that_raises(RuntimeError("boom")), [])
    told = capsys.readouterr().err
    assert "boom" in told
    assert "holdfast-" in told
    assert ".trace" in told


def refused(name):
    return PermissionError(errno.EACCES, "Permission denied", str(name))


@pytest.mark.parametrize("part", ["", "home", "home/state/gateways/dev", "cache/layers"])
def test_a_folder_of_ours_that_cannot_be_used_is_no_defect(part, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("HOLDFAST_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("HOLDFAST_CACHE", str(tmp_path / "cache"))
    assert exit_code_of(command_that_raises(refused(tmp_path / part)), []) == 3
    told = capsys.readouterr().err
    assert f"{tmp_path / part} cannot be used: Permission denied" in told
    assert "HOLDFAST_HOME" in told


def test_an_error_about_any_other_file_is_a_defect(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("HOLDFAST_HOME", str(tmp_path / "home"))
    assert exit_code_of(command_that_raises(refused(tmp_path / "elsewhere")), []) == 1
    assert "defect" in capsys.readouterr().err


def test_a_full_disk_is_no_defect(capsys):
    error = OSError(errno.ENOSPC, "No space left on device")
    assert exit_code_of(command_that_raises(error), []) == 3
    assert "[disk-full]" in capsys.readouterr().err


def test_a_misspelt_command_gets_a_suggestion(capsys):
    assert exit_code_of(cli, ["stpo"]) == 2
    assert "'stop'" in capsys.readouterr().err


def test_help_lists_every_command_and_imports_none(capsys):
    assert exit_code_of(cli, ["--help"]) == 0
    shown = capsys.readouterr().out
    for name in ("up", "stop", "start", "status", "list", "logs", "kubeconfig", "destroy", "image", "runs"):
        assert f"  {name} " in shown


# Their own commands take --json, as the tests of each of them show.
GROUPS = ("image", "runs", "sandbox")


@pytest.mark.parametrize("name", sorted(cli.list_commands(None)))
def test_every_command_loads_and_explains_itself(name, capsys):
    assert exit_code_of(cli, [name, "--help"]) == 0
    assert "--json" in capsys.readouterr().out or name in GROUPS


@pytest.mark.parametrize("port", ["0", "-1", "65536", "many", "80.5"])
def test_what_is_no_port_is_refused(port, capsys):
    assert exit_code_of(cli, ["up", "x", "--port", port]) == 2
    assert "1 to 65535" in capsys.readouterr().err
