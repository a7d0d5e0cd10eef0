"""Errors of commands: message, code, hint and exit code, never a traceback."""

import errno
import json
import os
import subprocess
import sys

import click
import pytest

from holdfast.cli import cli
from holdfast.cli.click_extensions import gateway_option, json_option
from holdfast.cli.output import run_command
from holdfast.errors import LockedError, OperationCancelledError, PermanentError, TemporaryError, UsageError


def command_that_raises(error):
    @click.command(context_settings={"ignore_unknown_options": True})
    @json_option
    @click.argument("words", nargs=-1, type=click.UNPROCESSED)
    def command(words):
        raise error

    return command


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (TemporaryError("a"), 1),
        (UsageError("a"), 2),
        (PermanentError("a"), 3),
        (LockedError("a"), 4),
        (OperationCancelledError("a"), 130),
        (KeyboardInterrupt(), 130),
        (click.Abort(), 130),
        (click.UsageError("a"), 2),
        (RuntimeError("a defect"), 1),
    ],
)
def test_every_error_has_exit_code_and_no_traceback(error, code, capsys):
    assert run_command(command_that_raises(error), []) == code
    output = capsys.readouterr()
    assert output.out == ""
    assert "Traceback" not in output.err
    assert output.err.strip()


def test_error_output_has_message_code_and_hint(capsys):
    run_command(command_that_raises(PermanentError("it broke", hint="Repair it.")), [])
    assert "it broke [permanent]" in capsys.readouterr().err


@click.command()
@gateway_option
@json_option
def failing_command(gateway):
    hint = "Run `holdfast sandbox exec a -- ls`, `holdfast image push x` or `holdfast up dev`."
    raise PermanentError("it broke", hint=hint)


@pytest.mark.parametrize(
    ("args", "variable", "words"),
    [
        (["-g", "dev"], "", " --gateway dev"),
        (["-g", "dev"], "prod", " --gateway dev"),
        ([], "prod", " --gateway prod"),
        ([], "", ""),
    ],
)
def test_hint_names_the_chosen_gateway(monkeypatch, capsys, args, variable, words):
    monkeypatch.setenv("HOLDFAST_GATEWAY", variable)
    run_command(failing_command, args)
    run_command(failing_command, [*args, "--json"])
    line, body = capsys.readouterr().err.splitlines()[1:]
    hint = f"Run `holdfast sandbox exec{words} a -- ls`, `holdfast image push{words} x` or `holdfast up dev`."
    assert (line.strip(), json.loads(body)["hint"]) == (hint, hint)


def test_hint_that_names_the_gateway_already_is_not_changed(monkeypatch, capsys):
    monkeypatch.setenv("HOLDFAST_GATEWAY", "prod")
    hint = "Run `holdfast sandbox get --gateway prod a` and `holdfast pool list --gateway prod`."
    run_command(command_that_raises(PermanentError("it broke", hint=hint)), [])
    assert hint in capsys.readouterr().err


def test_hint_for_the_help_of_a_command_names_no_gateway(monkeypatch, capsys):
    monkeypatch.setenv("HOLDFAST_GATEWAY", "prod")
    assert run_command(cli, ["sandbox", "update", "a", "--memory", "1k"]) == 2
    assert "Run `holdfast sandbox update --help`." in capsys.readouterr().err


def test_hint_quotes_a_name_that_the_shell_or_a_pattern_would_interpret(monkeypatch, capsys):
    monkeypatch.setenv("HOLDFAST_GATEWAY", r"CORP\dev x")
    assert run_command(failing_command, []) == 3
    assert r"`holdfast sandbox exec --gateway 'CORP\dev x' a -- ls`" in capsys.readouterr().err


def test_json_error_is_one_object(capsys):
    run_command(command_that_raises(PermanentError("it broke", hint="Repair it.")), ["--json"])
    output = json.loads(capsys.readouterr().err)
    assert output == {
        "event": "error",
        "code": "permanent",
        "error": "it broke",
        "hint": "Repair it.",
        "exit_code": 3,
        "run": "",
    }


@pytest.mark.parametrize(
    ("args", "is_json"),
    [
        (["--json"], True),
        (["word", "--json"], True),
        (["--", "prog", "--json"], False),
        (["--json", "--", "prog"], True),
    ],
)
def test_json_of_the_user_command_is_not_ours(args, is_json, capsys):
    run_command(command_that_raises(PermanentError("it broke")), args)
    assert capsys.readouterr().err.startswith("{") is is_json


@pytest.mark.parametrize(
    ("args", "is_json"),
    [
        (["sandbox", "exec", "s", "prog", "--json"], False),
        (["sandbox", "exec", "s", "--", "prog", "--json"], False),
        (["sandbox", "exec", "--json", "s", "prog"], True),
        (["sandbox", "get", "--no-such-option", "--json"], True),
        (["sandbox", "exec", "--no-such-option", "s", "--", "prog", "--json"], False),
        (["runs", "show", "--json"], True),
        (["stpo", "--json"], True),
    ],
)
def test_errors_of_commands_are_json_only_on_request(args, is_json, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("HOLDFAST_HOME", str(tmp_path))
    assert run_command(cli, args) == 2
    assert capsys.readouterr().err.startswith("{") is is_json


def test_closed_stdout_is_not_a_failure():
    reader, writer = os.pipe()
    os.close(reader)
    command = [sys.executable, "-m", "holdfast.cli", "--help"]
    ended = subprocess.run(command, stdout=writer, stderr=subprocess.PIPE, check=False)
    os.close(writer)
    assert (ended.returncode, ended.stderr) == (0, b"")


def test_internal_error_names_traceback_file(capsys):
    run_command(command_that_raises(RuntimeError("boom")), [])
    output = capsys.readouterr().err
    assert "boom" in output
    assert "holdfast-" in output
    assert ".trace" in output


def permission_error(name):
    return PermissionError(errno.EACCES, "Permission denied", str(name))


@pytest.mark.parametrize("part", ["", "home", "home/state/gateways/dev", "cache/layers"])
def test_unusable_holdfast_directory_is_not_an_internal_error(part, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("HOLDFAST_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("HOLDFAST_CACHE", str(tmp_path / "cache"))
    assert run_command(command_that_raises(permission_error(tmp_path / part)), []) == 3
    output = capsys.readouterr().err
    assert f"{tmp_path / part}: Permission denied" in output
    assert "HOLDFAST_HOME" in output


def test_os_error_on_other_file_is_an_internal_error(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("HOLDFAST_HOME", str(tmp_path / "home"))
    assert run_command(command_that_raises(permission_error(tmp_path / "elsewhere")), []) == 1
    assert "defect" in capsys.readouterr().err


def test_full_disk_is_not_an_internal_error(capsys):
    error = OSError(errno.ENOSPC, "No space left on device")
    assert run_command(command_that_raises(error), []) == 3
    assert "[disk-full]" in capsys.readouterr().err
