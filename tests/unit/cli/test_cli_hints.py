"""The commands in hints of the command line work as printed."""

import json
import shutil
import sqlite3
from contextlib import closing

import pytest
from tests.support.hints import execute_hint, hint_commands
from tests.support.holdfast_cli import HoldfastCli
from tests.support.stubs import stub

from holdfast.cli import cli
from holdfast.cli.output import run_command
from holdfast.gateway import commands, registry
from holdfast.workflow import SQLiteStore, Step, Workflow


@pytest.fixture
def holdfast(tmp_path):
    return HoldfastCli(tmp_path)


def test_unknown_command_names_help(holdfast):
    ended = holdfast.run("frobnicate")
    assert ended.returncode == 2
    assert "Commands" in execute_hint(holdfast, ended.stderr, "Run `{} --help`.")


@pytest.mark.parametrize("words", [("--gateway", "ghost"), ("show", "ghost")], ids=" ".join)
def test_unknown_run_names_list_of_runs(holdfast, words):
    ended = holdfast.run("runs", *words)
    assert ended.returncode == 2
    execute_hint(holdfast, ended.stderr, "Run `holdfast runs` to list all runs.")


@pytest.fixture
def two_gateways(tmp_path, monkeypatch):
    monkeypatch.setenv("HOLDFAST_HOME", str(tmp_path))
    for name in ("a", "b"):
        registry.write_metadata(registry.GatewayMetadata(name=name, image="i", port=1))


@pytest.mark.parametrize("words", [("up",), ("status",), ("sandbox", "create", "x")], ids=" ".join)
def test_no_active_gateway_names_command_that_chooses_one(holdfast, two_gateways, words):
    ended = holdfast.run(*words)
    assert (ended.returncode, ended.stdout) == (2, "")
    used = execute_hint(
        holdfast,
        ended.stderr,
        "Run `holdfast use {}` to make it the active one, or name one of: {}.",
    )
    assert used == "Gateway a is active.\n"
    assert registry.known_gateway_names() == ["a", "b"]


def test_unknown_gateway_to_use_names_list(holdfast, two_gateways):
    ended = holdfast.run("use", "ghost")
    assert ended.returncode == 2
    listed = execute_hint(holdfast, ended.stderr, "Run `holdfast list` to see all gateways.")
    assert listed.split("\n")[1].startswith("a ")


def test_up_of_inactive_gateway_names_command_that_activates_it(holdfast, two_gateways, monkeypatch, capsys):
    registry.use_gateway("a")
    result = commands.GatewayResult(name="b", run="1", changed=(), server="https://b", kubeconfig="k")
    stub(monkeypatch, commands, "up", lambda *_, **__: result)
    assert run_command(cli, ["up", "b"]) == 0
    execute_hint(
        holdfast, capsys.readouterr().out, "Gateway {} stays active. Run `holdfast use {}` to change that."
    )
    assert registry.active_gateway() == "b"


@pytest.mark.skipif(shutil.which("docker") is None, reason="needs the docker command")
def test_unknown_docker_context_names_list_of_contexts(tmp_path):
    holdfast = HoldfastCli(tmp_path, DOCKER_CONTEXT="ghost", DOCKER_CONFIG=str(tmp_path / "docker"))
    holdfast.environment.pop("DOCKER_HOST", None)
    ended = holdfast.run("up", "dev")
    assert ended.returncode == 2
    contexts = execute_hint(holdfast, ended.stderr, "Choose one of `docker context ls`, or set DOCKER_HOST.")
    assert "default" in contexts


@pytest.fixture
def no_engine(holdfast, tmp_path):
    return holdfast.with_environment(DOCKER_HOST=f"unix://{tmp_path}/none.sock")


def test_doctor_names_command_that_rewrites_the_active_gateway(no_engine, two_gateways, tmp_path):
    registry.remove_local_files("b")
    (tmp_path / "config" / "active").write_bytes(b"\xff\xfe")
    printed = no_engine.run("doctor").stdout
    used = execute_hint(no_engine, printed, "Run `holdfast use {}`: it rewrites the file.")
    assert used == "Gateway a is active.\n"
    assert "active-damaged" not in no_engine.run("doctor").stdout


def test_doctor_lets_the_user_choose_the_active_gateway(no_engine, two_gateways, tmp_path):
    (tmp_path / "config" / "active").write_bytes(b"\xff\xfe")
    report = json.loads(no_engine.run("doctor", "--json").stdout)["report"]
    (finding,) = [each for each in report["findings"] if each["code"] == "active-damaged"]
    assert finding["fixed_by"] == "person"
    assert finding["repair"].endswith(" a, b.")
    (command,) = hint_commands(finding["repair"], "Run `holdfast use NAME` with one of these names: {}.")
    used = no_engine.run(*command.replace("NAME", "b").split()[1:])
    assert used.stdout == "Gateway b is active.\n"
    assert "active-damaged" not in no_engine.run("doctor").stdout


def test_doctor_names_command_that_deletes_unreadable_runs(no_engine, two_gateways):
    path = registry.GatewayFiles("a").state
    Workflow("up", [Step("first", run=lambda ctx: 1, repeat="safe")]).run(store=SQLiteStore(path))
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("UPDATE runs SET body = 'damaged'")
    printed = no_engine.run("doctor", "a").stdout
    assert "runs-unreadable" in printed
    execute_hint(no_engine, printed, "Run `holdfast runs clean -g {}` to delete old runs.")
