"""Completion in real shells: bash, zsh and fish, with the script that `completion install` writes."""

import os
import shutil
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest
from tests.support.completion_world import completion_world, record_run
from tests.support.pseudo_terminal import ProgramOnTerminal

from holdfast.retry import Policy, constant

WORDS = {
    "holdfast kubecon": "holdfast kubeconfig ",
    "holdfast up --rem": "holdfast up --remote ",
    "holdfast status al": "holdfast status alphagate ",
    "holdfast sandbox get red": "holdfast sandbox get redbox ",
    "holdfast sandbox exec -g betagate blue": "holdfast sandbox exec -g betagate bluebox ",
    "holdfast pool get warm": "holdfast pool get warmpool ",
    "holdfast sandbox create x --template py": "holdfast sandbox create x --template pytemplate ",
    "holdfast sandbox delete redbox ": "holdfast sandbox delete redbox bluebox ",
    "holdfast sandbox suspend -g betagate bluebox re": "holdfast sandbox suspend -g betagate bluebox redbox ",
    "holdfast sandbox list --sel": "holdfast sandbox list --selector ",
    "holdfast sandbox list -o wi": "holdfast sandbox list -o wide ",
    "holdfast sandbox get redbox --output ya": "holdfast sandbox get redbox --output yaml ",
    "holdfast man show sandbox del": "holdfast man show sandbox delete ",
    "holdfast image push example/app": "holdfast image push example/app:1.0 ",
}

EVENTUALLY = Policy(attempts=20, backoff=constant(0.2), retry_on=AssertionError)


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    """A home with names to complete, and the environment of a user whose PATH contains holdfast."""
    folder = tmp_path_factory.mktemp("world")
    previous = os.environ.get("HOLDFAST_HOME")
    os.environ["HOLDFAST_HOME"] = str(folder)
    try:
        with completion_world(folder) as environment:
            run = record_run("alphagate")
            path = f"{Path(sys.executable).parent}:/usr/local/bin:/usr/bin:/bin"
            yield {**environment, "HOME": str(folder), "PATH": path, "TERM": "dumb", "RUN": run}
    finally:
        os.environ.pop("HOLDFAST_HOME")
        if previous is not None:
            os.environ["HOLDFAST_HOME"] = previous


def install(shell, environment):
    """Install the script; return what the command prints."""
    argv = ["holdfast", "completion", "install", shell]
    return subprocess.run(argv, env=environment, capture_output=True, text=True, check=True).stdout


def cases(environment):
    run = environment["RUN"]
    return {**WORDS, f"holdfast runs show {run[:-3]}": f"holdfast runs show {run} "}


def complete_on_terminal(terminal, cases, prompt):
    """Type each line with Tab, wait for the completed line, and delete it."""
    for typed, completed in cases.items():
        terminal.wait_for(prompt)
        terminal.type(typed)
        terminal.wait_for(typed[-2:].encode())
        press_tab_until(terminal, completed.removeprefix(typed).rstrip().encode())
        terminal.type("\x15\r")  # delete the line
    terminal.wait_for(prompt)
    terminal.type("exit\r")
    assert terminal.wait_exit_code() == 0


def press_tab_until(terminal, pattern):
    """On a busy machine the gateway's API may answer too late, which completes nothing."""
    for _ in range(20):
        terminal.type("\t")
        with suppress(AssertionError):
            terminal.wait_for(pattern, seconds=3)
            return
    raise AssertionError(f"never completed {pattern!r} in {terminal.output!r}")


def test_bash(world):
    printed = install("bash", world)
    source = printed.splitlines()[-1].strip()
    lines = [source, "PS1='ready$ '", "bind 'set enable-bracketed-paste off'"]
    (Path(world["HOME"]) / "rc").write_text("\n".join(lines) + "\n")
    argv = ["/bin/bash", "--noprofile", "--rcfile", f"{world['HOME']}/rc", "-i"]
    complete_on_terminal(ProgramOnTerminal(argv, world, 200), cases(world), rb"ready\$ ")


@pytest.mark.skipif(shutil.which("zsh") is None, reason="needs zsh")
def test_zsh(world):
    lines = [line.strip() for line in install("zsh", world).splitlines() if line.startswith("  ")]
    (Path(world["HOME"]) / ".zshrc").write_text("\n".join([*lines, "PS1='ready$ '"]) + "\n")
    environment = {**world, "ZDOTDIR": world["HOME"], "TERM": "vt100"}
    terminal = ProgramOnTerminal([shutil.which("zsh"), "-d", "-i"], environment, 200)
    complete_on_terminal(terminal, cases(world), rb"ready\$ ")


@pytest.mark.skipif(shutil.which("fish") is None, reason="needs fish")
def test_fish(world):
    install("fish", world)
    for typed, completed in cases(world).items():
        EVENTUALLY.call(assert_fish_completes, typed, completed.split()[-1], world)


def assert_fish_completes(typed, name, environment):
    argv = ["fish", "-c", f"complete -C '{typed}'"]
    ended = subprocess.run(argv, env=environment, capture_output=True, text=True, check=True)
    assert [line.partition("\t")[0] for line in ended.stdout.splitlines()] == [name]
