"""The commands in hints of the command line work as printed."""

import shutil

import pytest
from tests.support.hints import execute_hint
from tests.support.holdfast_cli import HoldfastCli


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


@pytest.mark.skipif(shutil.which("docker") is None, reason="needs the docker command")
def test_unknown_docker_context_names_list_of_contexts(tmp_path):
    holdfast = HoldfastCli(tmp_path, DOCKER_CONTEXT="ghost", DOCKER_CONFIG=str(tmp_path / "docker"))
    holdfast.environment.pop("DOCKER_HOST", None)
    ended = holdfast.run("up", "dev")
    assert ended.returncode == 2
    contexts = execute_hint(holdfast, ended.stderr, "Choose one of `docker context ls`, or set DOCKER_HOST.")
    assert "default" in contexts
