"""The words of `holdfast sandbox …`: what is refused before anybody is asked, and how it is said."""

import json
import os
from contextlib import nullcontext

import pytest
from click.testing import CliRunner

from holdfast.cli import cli, sandbox_lifecycle
from holdfast.cli.ending import exit_code_of
from holdfast.cli.sandbox import _COMMANDS
from holdfast.cli.sandbox_copy import _amount
from holdfast.cli.sandbox_exec import execute
from holdfast.cli.sandbox_inspection import _age, _facts, _lines
from holdfast.cli.sandbox_lifecycle import _fate, _prospect
from holdfast.sandbox.sdk.requests import request_for
from holdfast.sandbox.wire import Condition, Deletion, Phase, SandboxView, WorkspaceView


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("HOLDFAST_HOME", str(tmp_path))


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["create", "Bad_Name"], "no name for a sandbox"),
        (["create", "a", "--image", "x", "--template", "t"], "exclude each other"),
        (["create", "a", "--no-workspace", "--workspace-size", "1Gi"], "exclude each other"),
        (["create", "a", "--workspace-size", "much"], "size"),
        (["create", "a", "--cpu", "lots"], "cpu"),
        (["create", "a", "--env", "NO_SUCH_VARIABLE_HERE"], "no such variable"),
        (["create", "a", "--label", "x"], "KEY=VALUE"),
        (["create", "a", "--command", "sh -c 'x"], "--command cannot be read"),
        (["create", "a", "--timeout", "0"], "--timeout"),
        (["create", "a", "--shutdown-after", "0"], "--shutdown-after"),
        (["create", "a", "--shutdown-after", "1h"], "--shutdown-after"),
        (["create", "a", "--shutdown-after", str(10**20)], "shutdown_after"),
        (["cp", "here", "there"], "must be in a sandbox"),
        (["cp", "a:x", "b:y"], "must be in a sandbox"),
        (["forward", "a", "80:x"], "no ports"),
        (["forward", "a", "80:0"], "cannot be 0"),
        (["forward", "a", "80:70000"], "no ports"),
        (["exec", "a"], "COMMAND"),
        (["exec", "--tty", "--json", "a", "sh"], "exclude each other"),
        (["wait", "a", "--for", "Happy"], "--for"),
        (["get"], "NAME"),
        (["vanish", "a"], "no command 'vanish'"),
    ],
)
def test_bad_words_are_one_clear_line(capsys, words, said):
    assert exit_code_of(cli, ["sandbox", *words]) == 2
    printed = capsys.readouterr().err
    assert said in printed
    assert "Traceback" not in printed


@pytest.mark.parametrize(
    "words", [["list"], ["get", "a"], ["exec", "a", "ls"], ["create", "a", "--no-bootstrap"]]
)
def test_no_gateway_is_said_with_what_to_do(capsys, words):
    assert exit_code_of(cli, ["sandbox", *words]) == 2
    assert "holdfast up" in capsys.readouterr().err


def test_no_bootstrap_refuses_a_gateway_that_is_down_and_changes_nothing(capsys, tmp_path):
    assert exit_code_of(cli, ["sandbox", "create", "a", "--no-bootstrap", "-g", "dev", "--json"]) == 2
    said = json.loads(capsys.readouterr().err)
    assert (said["code"], "gateway dev is not up" in said["error"]) == ("unknown-gateway", True)
    assert list(tmp_path.rglob("*.db")) == []


def test_options_of_exec_stand_on_either_side_of_the_name_and_never_in_the_command(capsys):
    """All of these fail at the gateway that is named, so its name was read."""
    for words in (["exec", "-g", "x", "a", "ls", "-g", "y"], ["exec", "a", "-g", "x", "--", "ls", "-g", "y"]):
        assert exit_code_of(cli, ["sandbox", *words]) == 2
        assert "there is no gateway x" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "ours", "command"),
    [
        ("a ls", {}, "ls"),
        ("-t a ls", {"tty": True}, "ls"),
        ("-t a ls -t", {"tty": True}, "ls -t"),
        ("a git checkout -- file", {}, "git checkout -- file"),
        ("a git log -p -- file", {}, "git log -p -- file"),
        ("a grep -i -- x file", {}, "grep -i -- x file"),
        ("a sed -n -- p", {}, "sed -n -- p"),
        ("a ls -t -- x", {}, "ls -t -- x"),
        ("a ls --json -- x", {}, "ls --json -- x"),
        ("a rm -- -f", {}, "rm -- -f"),
        ("a ls --", {}, "ls --"),
        ("a -- ls -t", {}, "ls -t"),
        ("a -- git checkout -- file", {}, "git checkout -- file"),
        ("a -t -- ls", {"tty": True}, "ls"),
        ("a -g x -- git checkout -- file", {"gateway": "x"}, "git checkout -- file"),
        ("a -tig x -c y -- ls", {"tty": True, "stdin": True, "gateway": "x", "container": "y"}, "ls"),
        ("-g x a -g y --json -- ls", {"gateway": "y", "as_json": True}, "ls"),
        ("-g x a git log -p -- file", {"gateway": "x"}, "git log -p -- file"),
        ("a -t ls -- x", {}, "-t ls -- x"),
        ("-- a ls -t", {}, "ls -t"),
        ("-- a ls -- -t", {}, "ls -- -t"),
    ],
)
def test_the_words_of_a_command_are_its_own(words, ours, command):
    read = execute.make_context("exec", words.split()).params
    given = {key: value for key, value in read.items() if value not in (None, False)}
    assert given == {"name": "a", "command": tuple(command.split()), **ours}


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["a", "-x", "--", "ls"], "No such option"),
        (["a", "-g", "--", "ls"], "requires an argument"),
        (["a", "--"], "COMMAND"),
        (["a", "-t", "--"], "COMMAND"),
        ([], "NAME"),
    ],
)
def test_what_is_no_command_is_refused(capsys, words, said):
    assert exit_code_of(cli, ["sandbox", "exec", *words]) == 2
    assert said in capsys.readouterr().err


class Up:
    """A gateway that is up, where sandboxes are only asked for; keeps what they were asked for with."""

    name = "dev"

    def __init__(self):
        self.made = False
        self.asked = None

    def sandbox(self, name):
        self.box = name
        return nullcontext(self)

    def create(self, image, **options):
        self.asked = request_for(self.box, image=image, **options)
        return VIEW


@pytest.mark.parametrize("source", [(), ("--image", "x"), ("--template", "t")])
def test_an_end_is_asked_for_in_seconds_so_that_the_same_words_ask_for_the_same(monkeypatch, source):
    up = Up()
    monkeypatch.setattr(sandbox_lifecycle, "brought_up", lambda *_, **__: up)
    assert exit_code_of(cli, ["sandbox", "create", "a", "--no-wait", "--shutdown-after", "90", *source]) == 0
    assert up.asked.shutdown_after == 90
    assert exit_code_of(cli, ["sandbox", "create", "a", "--no-wait", *source]) == 0
    assert up.asked.shutdown_after is None


def test_every_command_explains_itself_and_takes_json():
    runner = CliRunner()
    assert len(_COMMANDS) == 12
    listed = runner.invoke(cli, ["sandbox", "--help"]).output
    for name in [
        "create",
        "list",
        "get",
        "exec",
        "connect",
        "cp",
        "logs",
        "forward",
        "suspend",
        "resume",
        "wait",
        "delete",
    ]:
        assert f"  {name} " in listed
        text = runner.invoke(cli, ["sandbox", name, "--help"]).output
        assert "--gateway" in text
        assert "--json" in text, name


VIEW = SandboxView(
    name="a",
    id="1",
    phase=Phase.PENDING,
    reason="ErrImagePull",
    workspace=WorkspaceView(claim="workspace-a", size="2Gi"),
    conditions=[Condition(type="Ready", status="False", reason="DependenciesNotReady", message="no image")],
    notes=["network policy is not enforced here"],
)


def test_get_shows_state_data_conditions_and_notes():
    lines = list(_facts(VIEW))
    assert "phase      Pending" in lines
    assert "workspace  2Gi in claim workspace-a (Pending)" in lines
    assert "on delete  its data goes with it" in lines
    assert "condition  Ready=False (DependenciesNotReady: no image)" in lines
    assert lines[-1] == "note       network policy is not enforced here"


def test_delete_says_what_becomes_of_the_data_before_and_after():
    assert _prospect(VIEW, keep=False) == "all data in its workspace (claim workspace-a) is removed with it"
    assert _prospect(VIEW, keep=True) == "its data stays in the claim workspace-a"
    kept = Deletion(deleted=True, workspace="kept", claim="workspace-a")
    assert _fate("a", kept) == "Sandbox a is deleted. Its data is kept in the claim workspace-a."
    assert "workspace is deleted" in _fate("a", Deletion(deleted=True, workspace="deleted"))
    assert "no sandbox a any more" in _fate("a", Deletion(deleted=False, workspace="none"))


def test_small_readings():
    assert [_amount(count) for count in (5, 2048, 3 << 20, 5 << 30)] == [
        "5 B",
        "2.0 KiB",
        "3.0 MiB",
        "5.0 GiB",
    ]
    assert _age(None) == ""
    assert _age("2020-01-01T00:00:00Z").endswith("d")
    assert list(_lines(iter([b"a\nb", b"c\n", b"d"]))) == [b"a", b"bc", b"d"]


def test_a_variable_alone_is_taken_from_here(monkeypatch):
    from holdfast.cli.sandbox_lifecycle import _variables

    monkeypatch.setitem(os.environ, "TOKEN_OF_MINE", "x=y")
    assert _variables(("TOKEN_OF_MINE", "A=", "B=c=d")) == {"TOKEN_OF_MINE": "x=y", "A": "", "B": "c=d"}
