"""The command group, shared options and the confirmation by name."""

import re
from pathlib import Path

import click
import pytest
from tests.support.command_tree import all_commands

from holdfast.cli import cli
from holdfast.cli.click_extensions import confirm_by_name, gateway_argument, is_quiet_requested
from holdfast.cli.output import run_command
from holdfast.errors import UsageError

REFERENCE = Path(__file__).resolve().parents[3] / "docs" / "reference" / "cli"
# The subcommands of these groups accept --json; their own tests check that.
GROUPS = ("completion", "image", "man", "pool", "runs", "sandbox", "secret", "template")


COMMANDS = dict(all_commands())


def test_misspelled_command_gets_suggestion(capsys):
    assert run_command(cli, ["stpo"]) == 2
    assert "'stop'" in capsys.readouterr().err


def test_help_lists_commands_and_exit_codes(capsys):
    assert run_command(cli, ["--help"]) == 0
    output = capsys.readouterr().out
    for name in ("up", "stop", "start", "status", "list", "logs", "kubeconfig", "destroy", "image", "runs"):
        assert f"  {name} " in output
    assert "controller" not in output
    for line in (
        "1    failed; rerun the same command to continue",
        "3    manual action required; see the hint",
    ):
        assert line in output


@pytest.mark.parametrize("name", sorted(cli.list_commands(None)))
def test_every_command_has_help_and_json(name, capsys):
    assert run_command(cli, [name, "--help"]) == 0
    assert "--json" in capsys.readouterr().out or name in GROUPS


@pytest.mark.parametrize("path", COMMANDS, ids=" ".join)
def test_help_texts_are_complete_sentences(path):
    command = COMMANDS[path]
    assert command.help
    assert command.help.strip().endswith(".")
    for parameter in command.params:
        if isinstance(parameter, click.Option):
            assert parameter.help, parameter.name
            assert parameter.help[0].isupper(), parameter.help
            assert parameter.help.endswith("."), parameter.help


def is_public(path):
    groups = {("completion",), ("image",), ("man",), ("pool",), ("sandbox",), ("secret",), ("template",)}
    return path[0] not in ("server", "controller") and path not in groups


@pytest.mark.parametrize("path", list(filter(is_public, COMMANDS)), ids=" ".join)
def test_reference_describes_every_command_and_option(path):
    page = REFERENCE / f"{path[0]}.md"
    page = page if page.exists() else REFERENCE / "gateway.md"
    introduction, *sections = re.split(r"^## ", page.read_text(), flags=re.MULTILINE)
    (section,) = (text for text in sections if text.startswith(f"`holdfast {' '.join(path)}`"))
    for parameter in COMMANDS[path].params:
        for option in parameter.opts if isinstance(parameter, click.Option) else ():
            assert re.search(rf"(?<![\w-]){option}(?![\w-])", introduction + section), option


def has_gateway(path):
    if path[0] == "image":
        return path[1:] == ("push",)
    return is_public(path) and path[0] not in ("completion", "man") and path not in {("list",), ("version",)}


@pytest.mark.parametrize("path", list(filter(has_gateway, COMMANDS)), ids=" ".join)
def test_every_command_takes_its_gateway_as_option(path):
    options = [option for parameter in COMMANDS[path].params for option in parameter.opts]
    assert {"-g", "--gateway"} <= set(options)


@pytest.mark.parametrize(
    ("args", "name"),
    [([], None), (["a"], "a"), (["-g", "a"], "a"), (["--gateway", "a", "a"], "a"), (["a", "-g", "b"], "")],
)
def test_gateway_is_an_argument_or_an_option_but_not_two_different_ones(capsys, args, name):
    received = []

    @click.command()
    @gateway_argument
    def command(name):
        received.append(name)

    if name != "":
        assert run_command(command, args) == 0
        assert received == [name]
        return
    assert run_command(command, args) == 2
    assert "--gateway b: not the gateway a" in capsys.readouterr().err
    assert received == []


@pytest.mark.parametrize("args", [["-q", "version"], ["version", "-q"], ["--quiet", "version", "--json"]])
def test_quiet_is_accepted_before_and_after_the_command(args, capsys, monkeypatch):
    requested = []
    monkeypatch.setattr("platform.python_version", lambda: requested.append(is_quiet_requested()))
    assert run_command(cli, args) == 0
    assert requested == [True]
    assert capsys.readouterr().out != ""


@pytest.mark.parametrize("port", ["0", "-1", "65536", "many", "80.5", "²", "9" * 5000])
def test_invalid_port_is_rejected(port, capsys):
    assert run_command(cli, ["up", "x", "--port", port]) == 2
    assert "1 to 65535" in capsys.readouterr().err


def test_confirmation_by_option():
    confirm_by_name("dev", "destroying gateway dev", yes="dev")
    with pytest.raises(UsageError, match="--yes prod: not the name of gateway dev"):
        confirm_by_name("dev", "destroying gateway dev", yes="prod")


def test_confirmation_without_terminal_is_rejected(monkeypatch):
    monkeypatch.setattr("sys.stdin.isatty", lambda: False, raising=False)
    with pytest.raises(UsageError, match="destroying gateway dev: has to be confirmed"):
        confirm_by_name("dev", "destroying gateway dev", yes=None)


@pytest.mark.parametrize("typed", ["dev", "other", ""])
def test_confirmation_on_terminal_needs_the_name(monkeypatch, typed):
    monkeypatch.setattr("sys.stdin.isatty", lambda: True, raising=False)
    monkeypatch.setattr(click, "prompt", lambda *_, **__: typed)
    if typed == "dev":
        confirm_by_name("dev", "destroying gateway dev", yes=None)
        return
    with pytest.raises(UsageError, match="nothing was changed"):
        confirm_by_name("dev", "destroying gateway dev", yes=None)
