"""Arguments of `holdfast sandbox …`, and the text that the commands print."""

import json
import os
import threading
from contextlib import nullcontext

import msgspec
import pytest
from click.testing import CliRunner
from tests.support.stubs import stub

from holdfast.api import Condition, DeletionResult, Phase, SandboxView, WorkspaceView
from holdfast.cli import cli
from holdfast.cli.click_extensions import _OTHER_NAMES, is_json_requested
from holdfast.cli.output import format_age, run_command
from holdfast.cli.parameters import VARIABLE
from holdfast.cli.sandbox import _COMMANDS, create
from holdfast.cli.sandbox.common import event_printer
from holdfast.cli.sandbox.cp import _format_bytes
from holdfast.cli.sandbox.delete import _deletion_summary, _planned_data_outcome
from holdfast.cli.sandbox.exec import exec_command
from holdfast.cli.sandbox.inspection import _detail_lines, _split_lines
from holdfast.events import RetryScheduled
from holdfast.gateway.registry import GatewayMetadata, set_active_gateway, write_metadata
from holdfast.sandbox import build_request


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("HOLDFAST_HOME", str(tmp_path))


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["create", "Bad_Name"], "not a valid sandbox name"),
        (["create", "a", "--image", "x", "--template", "t"], "cannot be combined with --template"),
        (["create", "a", "--no-workspace", "--workspace-size", "1Gi"], "cannot be combined"),
        (["create", "a", "--workspace-size", "much"], "size"),
        (["create", "a", "--cpu", "lots"], "cpu"),
        (["create", "a", "--memory", "512MB"], "--memory 512MB: not an amount of memory; write 512Mi"),
        (["create", "a", "--memory", "512"], "--memory 512: less than the minimum of 16Mi; write 512Mi"),
        (["create", "a", "--env", "NO_SUCH_VARIABLE_HERE"], "is not set on this machine"),
        (["create", "a", "--label", "x"], "=VALUE"),
        (["create", "a", "--command", "sh -c 'x"], "--command 'sh -c 'x': no closing quotation"),
        (["create", "a", "--timeout", "0"], "--timeout"),
        (["create", "a", "--shutdown-after", "0"], "--shutdown-after"),
        (["create", "a", "--shutdown-after", "1h"], "--shutdown-after"),
        (["create", "a", "--shutdown-after", str(10**20)], "--shutdown-after 1"),
        (["cp", "here", "there"], "must be a path in a sandbox"),
        (["cp", "a:x", "b:y"], "must be a path in a sandbox"),
        (["forward", "a", "80:x"], "not a port mapping"),
        (["forward", "a", "80:0"], "cannot be 0"),
        (["forward", "a", "80:70000"], "not a port mapping"),
        (["forward", "a", "9" * 5000], "not a port mapping"),
        (["exec", "a"], "COMMAND"),
        (["exec", "--tty", "--json", "a", "sh"], "cannot be combined with --json"),
        (["exec", "-e", "NO_SUCH_VARIABLE_HERE", "a", "true"], "is not set on this machine"),
        (["exec", "--background", "--tty", "a", "sh"], "--tty: cannot be combined with --background"),
        (["exec", "-b", "-i", "a", "sh"], "--stdin: cannot be combined with --background"),
        (["exec", "-b", "--timeout", "9", "a", "sh"], "--timeout: cannot be combined with --background"),
        (["cp", "-", "-"], "must be a path in a sandbox"),
        (["cp", "a:x", "-", "--json"], "--json: cannot be combined with the target -"),
        (["wait", "a", "--for", "Happy"], "--for"),
        (["get"], "NAME"),
        (["vanish", "a"], "holdfast sandbox vanish: no such command"),
    ],
)
def test_invalid_arguments_are_reported_in_one_line(capsys, args, message):
    assert run_command(cli, ["sandbox", *args]) == 2
    output = capsys.readouterr().err
    assert message in output
    assert "Traceback" not in output


@pytest.mark.parametrize(
    "args", [["list"], ["get", "a"], ["exec", "a", "ls"], ["create", "a", "--no-bootstrap"]]
)
def test_missing_gateway_is_reported_with_hint(capsys, args):
    assert run_command(cli, ["sandbox", *args]) == 2
    assert "holdfast up" in capsys.readouterr().err


def test_no_bootstrap_rejects_stopped_gateway_without_changes(capsys, tmp_path):
    assert run_command(cli, ["sandbox", "create", "a", "--no-bootstrap", "-g", "dev", "--json"]) == 2
    error = json.loads(capsys.readouterr().err)
    assert (error["code"], "gateway dev: not up" in error["error"]) == ("unknown-gateway", True)
    assert list(tmp_path.rglob("*.db")) == []


@pytest.fixture
def recorded_gateway(tmp_path, monkeypatch):
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/none.sock")
    write_metadata(GatewayMetadata(name="lab", image="i", port=1))


@pytest.mark.parametrize("words", [["create", "a"], ["create", "a", "--no-bootstrap"], ["list"]])
@pytest.mark.parametrize("by", ["option", "variable", "active"])
def test_mistyped_gateway_is_not_created(recorded_gateway, words, by, capsys, monkeypatch, tmp_path):
    options = ["-g", "lba"] if by == "option" else []
    if by == "variable":
        monkeypatch.setenv("HOLDFAST_GATEWAY", "lba")
    if by == "active":
        set_active_gateway("lba")
    assert run_command(cli, ["sandbox", *words, *options, "--json"]) == 2
    error = json.loads(capsys.readouterr().err)
    assert (error["code"], error["error"]) == ("unknown-gateway", "gateway lba: not found")
    assert error["hint"] == "Did you mean 'lab'? Run `holdfast list` to see all gateways."
    assert list(tmp_path.rglob("*.db")) == []


@pytest.mark.parametrize("command", [["pool", "create"], ["template", "create"], ["sandbox", "list"]])
def test_failed_command_prints_one_error_line(recorded_gateway, command, capsys):
    name = [] if command[-1] == "list" else ["work"]
    assert run_command(cli, [*command, *name]) == 2
    lines = capsys.readouterr().err.splitlines()
    assert [line.partition(":")[0] for line in lines if line.startswith("x ")] == ["x gateway lab"]


@pytest.mark.parametrize(
    ("words", "suggestion"),
    [
        (["rm"], "'sandbox delete' or 'destroy'"),
        (["ls"], "'list' or 'sandbox list'"),
        (["ps"], "'list' or 'sandbox list'"),
        (["exec", "box", "ls"], "'sandbox exec'"),
        (["sandbox", "rm", "box"], "'delete'"),
        (["pool", "ls"], "'list'"),
        (["secret", "show"], "'get'"),
        (["statsu"], "'status'"),
    ],
)
def test_name_of_another_program_suggests_a_command(words, suggestion, capsys):
    assert run_command(cli, words) == 2
    assert f"Did you mean {suggestion}?" in capsys.readouterr().err


def test_suggested_commands_exist():
    for other, suggestions in _OTHER_NAMES.items():
        groups = [cli, *(cli.get_command(None, name) for name in ("sandbox", "template", "pool", "secret"))]
        for suggestion in suggestions:
            first, _, second = suggestion.partition(" ")
            offering = [group for group in groups if first in group.list_commands(None)]
            assert offering, (other, suggestion)
            assert not second or second in cli.get_command(None, first).list_commands(None)


def test_exec_options_are_accepted_around_name_but_not_in_command(capsys):
    """The commands fail because the named gateway does not exist, so the option was parsed."""
    for args in (["exec", "-g", "x", "a", "ls", "-g", "y"], ["exec", "a", "-g", "x", "--", "ls", "-g", "y"]):
        assert run_command(cli, ["sandbox", *args]) == 2
        assert "gateway x: not found" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("line", "options", "command"),
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
        ("a --timeout 9 -- ls", {"timeout": 9.0}, "ls"),
        ("a timeout --timeout 9 ls", {}, "timeout --timeout 9 ls"),
        ("a -g x -- git checkout -- file", {"gateway": "x"}, "git checkout -- file"),
        ("a -b --cwd d -e A=1 -- ls", {"background": True, "cwd": "d", "env": (("A", "1"),)}, "ls"),
        ("a env -b -e A=1", {}, "env -b -e A=1"),
        ("a -tig x -c y -- ls", {"tty": True, "stdin": True, "gateway": "x", "container": "y"}, "ls"),
        ("-g x a -g y --json -- ls", {"gateway": "y"}, "ls"),
        ("-g x a git log -p -- file", {"gateway": "x"}, "git log -p -- file"),
        ("a -t ls -- x", {}, "-t ls -- x"),
        ("-- a ls -t", {}, "ls -t"),
        ("-- a ls -- -t", {}, "ls -- -t"),
    ],
)
def test_command_arguments_are_passed_unchanged(line, options, command):
    parameters = exec_command.make_context("exec", line.split()).params
    parsed = {key: value for key, value in parameters.items() if value not in (None, False, ())}
    assert parsed == {"name": "a", "command": tuple(command.split()), **options}


@pytest.mark.parametrize(("line", "requested"), [("a --json -- ls", True), ("a ls --json", False)])
def test_json_option_of_command_is_not_ours(line, requested):
    with exec_command.make_context("exec", line.split()):
        assert is_json_requested() is requested


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["a", "-x", "--", "ls"], "no such option"),
        (["a", "-g", "--", "ls"], "requires an argument"),
        (["a", "--"], "COMMAND"),
        (["a", "-t", "--"], "COMMAND"),
        ([], "NAME"),
    ],
)
def test_invalid_command_is_rejected(capsys, args, message):
    assert run_command(cli, ["sandbox", "exec", *args]) == 2
    assert message in capsys.readouterr().err


def test_exec_prints_events_of_other_threads_as_json(capsys):
    with exec_command.make_context("exec", ["--json", "a", "ls"]):
        printer = event_printer()
    retry = RetryScheduled(operation="exec", attempt=1, delay=0.5, reason="reset")
    thread = threading.Thread(target=printer, args=(retry,))
    thread.start()
    thread.join()
    assert json.loads(capsys.readouterr().err)["reason"] == "reset"


def test_exec_prints_no_events_with_quiet(capsys):
    with exec_command.make_context("exec", ["-q", "a", "ls"]):
        printer = event_printer()
    printer(RetryScheduled(operation="exec", attempt=1, delay=0.5, reason="reset"))
    assert capsys.readouterr().err == ""


class FakeGateway:
    """A gateway that is up and records the request for its sandbox."""

    name = "dev"
    is_new = False
    request = None

    def sandbox(self, name):
        self.sandbox_name = name
        return nullcontext(self)

    def create(self, image, **options):
        self.request = build_request(self.sandbox_name, image=image, **options)
        return VIEW


@pytest.mark.parametrize("source", [(), ("--image", "x"), ("--template", "t")])
def test_shutdown_is_sent_in_seconds_so_repeated_create_is_identical(monkeypatch, source):
    gateway = FakeGateway()
    stub(monkeypatch, create, "ensure_gateway_up", lambda *_, **__: gateway)
    assert run_command(cli, ["sandbox", "create", "a", "--no-wait", "--shutdown-after", "90", *source]) == 0
    assert gateway.request.shutdown_after == 90
    assert run_command(cli, ["sandbox", "create", "a", "--no-wait", *source]) == 0
    assert gateway.request.shutdown_after is None


def test_every_command_has_help_and_json():
    runner = CliRunner()
    listed = runner.invoke(cli, ["sandbox", "--help"]).output
    for name in _COMMANDS:
        assert f"  {name} " in listed
        text = runner.invoke(cli, ["sandbox", name, "--help"]).output
        assert "--gateway" in text
        assert "--json" in text, name


VIEW = SandboxView(
    name="a",
    id="1",
    phase=Phase.PENDING,
    reason="ErrImagePull",
    workspace=WorkspaceView(pvc="workspace-a", size="2Gi"),
    conditions=[Condition(type="Ready", status="False", reason="DependenciesNotReady", message="no image")],
    notes=["network policy is not enforced here"],
)


def test_get_shows_state_data_conditions_and_notes():
    lines = list(_detail_lines(VIEW))
    assert "phase      Pending" in lines
    assert "workspace  2Gi in PVC workspace-a (Pending)" in lines
    assert "on delete  delete the data" in lines
    assert "condition  Ready=False (DependenciesNotReady: no image)" in lines
    assert lines[-1] == "note       network policy is not enforced here"


def test_get_shows_labels_resources_command_idle_time_and_unenforced_size():
    view = msgspec.structs.replace(
        VIEW,
        labels={"team": "blue", "holdfast.dev/managed-by": "holdfast", "tier": "1"},
        command=["sh", "-c", "sleep 9"], args=["x"], cpu="2", memory="512Mi",
        idle_suspend_after=600, last_used="2026-01-01T00:00:00Z",
        workspace=WorkspaceView(pvc="workspace-a", size="2Gi", phase="Bound", size_enforced=False),
    )  # fmt: skip
    lines = list(_detail_lines(view))
    assert "labels     team=blue, tier=1" in lines
    assert "command    sh -c 'sleep 9'" in lines
    assert "args       x" in lines
    assert "resources  cpu 2, memory 512Mi" in lines
    assert "idle       suspended after 600 s without use; last used 2026-01-01T00:00:00Z" in lines
    assert "workspace  2Gi in PVC workspace-a (Bound), size not enforced" in lines


def test_delete_reports_data_retention_before_and_after():
    assert _planned_data_outcome(VIEW, keep=False) == "all data in its workspace (PVC workspace-a) is deleted"
    assert _planned_data_outcome(VIEW, keep=True) == "its data is kept in PVC workspace-a"
    kept = DeletionResult(deleted=True, workspace="kept", pvc="workspace-a")
    assert _deletion_summary("a", kept) == "Sandbox a is deleted. Its data is kept in PVC workspace-a."
    assert "workspace is deleted" in _deletion_summary("a", DeletionResult(deleted=True, workspace="deleted"))
    assert "may still exist" in _deletion_summary("a", DeletionResult(deleted=True, workspace="unknown"))
    assert "Sandbox a does not exist." in _deletion_summary(
        "a", DeletionResult(deleted=False, workspace="none")
    )


def test_parse_helpers():
    assert [_format_bytes(count) for count in (5, 2048, 3 << 20, 5 << 30)] == [
        "5 B",
        "2.0 KiB",
        "3.0 MiB",
        "5.0 GiB",
    ]
    assert format_age(None) == ""
    assert format_age("2020-01-01T00:00:00Z").endswith("d")
    assert list(_split_lines(iter([b"a\nb", b"c\n", b"d"]))) == [b"a", b"bc", b"d"]


def test_env_name_without_value_is_read_from_environment(monkeypatch):
    monkeypatch.setitem(os.environ, "TOKEN_OF_MINE", "x=y")
    parsed = [VARIABLE.convert(text, None, None) for text in ("TOKEN_OF_MINE", "A=", "B=c=d")]
    assert parsed == [("TOKEN_OF_MINE", "x=y"), ("A", ""), ("B", "c=d")]
