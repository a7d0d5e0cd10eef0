"""A deletion of several sandboxes on a real pseudo-terminal: widths, pipes, NO_COLOR and Ctrl-C.

The program is the real command with the real client; only the requests of each sandbox are fakes.
"""

import os
import re
import subprocess
import sys

import pytest
from tests.support.pseudo_terminal import ProgramOnTerminal, Screen

PROGRAM = """
import asyncio
import sys
from contextlib import contextmanager

from holdfast.api import DeletionResult
from holdfast.cli import cli
from holdfast.cli.output import progress_renderer, run_command
from holdfast.cli.sandbox import delete
from holdfast.client import AsyncSandbox, Sandboxes, portal
from holdfast.errors import WaitTimeoutError


async def delete_one(self, **options):
    return DeletionResult(deleted=True, workspace="deleted", pvc=f"workspace-{self.name}")


async def wait_gone(self, *, timeout):
    if self.name.startswith("bad"):
        raise WaitTimeoutError(f"sandbox {self.name}: still exists")
    if self.name.startswith("slow"):
        try:
            await asyncio.Event().wait()
        finally:
            if self.name == "slow-to-stop":
                print("stopping", file=sys.stderr, flush=True)
                await asyncio.Event().wait()


@contextmanager
def open_sandboxes(gateway):
    with progress_renderer() as renderer, Sandboxes(lambda: None) as sandboxes:
        yield sandboxes, renderer


portal._CLEANUP_TIMEOUT = 3600.0
AsyncSandbox.delete, AsyncSandbox.wait_gone = delete_one, wait_gone
delete.open_sandboxes = open_sandboxes
sys.exit(run_command(cli, ["sandbox", "delete", "--yes", *sys.argv[1:]]))
"""
WIDTHS = [40, 80, 200]
PLAIN_ENVIRONMENTS = [{"NO_COLOR": "1"}, {"TERM": "dumb"}]
RESULTS = [
    "Sandbox a is deleted. Its workspace is deleted.",
    "Sandbox b is deleted. Its workspace is deleted.",
]


@pytest.fixture
def environment(tmp_path):
    """A capable terminal, regardless of the terminal that runs the tests."""
    hidden = {"NO_COLOR", "CI", "FORCE_COLOR", "COLUMNS", "LINES"}
    inherited = {name: value for name, value in os.environ.items() if name not in hidden}
    return {**inherited, "TERM": "xterm-256color", "HOLDFAST_HOME": str(tmp_path)}


@pytest.fixture
def argv(tmp_path):
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    return [sys.executable, str(program)]


@pytest.fixture
def start(argv, environment):
    """Delete sandboxes on a terminal."""

    def start(*words, columns=80, **variables):
        return ProgramOnTerminal([*argv, *words], {**environment, **variables}, columns)

    return start


def without_times(text):
    """The output without durations, which depend on the machine."""
    return re.sub(r" \([0-9.]+ s\)", "", text)


@pytest.mark.parametrize("columns", WIDTHS)
def test_progress_is_one_line_with_counts_that_disappears(start, columns):
    terminal = start("a", "b", "bad", "slow", columns=columns)
    frame = terminal.wait_for(rb"(?s).*?3 of 4.*?\r")[0]
    screen = Screen(frame.rpartition(b"\x1b[2K")[2], columns)
    assert screen.wrapped == 0
    (line,) = screen.lines
    assert "3 of 4 sandb" in line
    assert " 75%  " in line
    assert ("3 of 4 sandboxes, 1 failed" in line, "━" in line) == (columns >= 80, columns >= 80)
    terminal.type("\x03")
    assert terminal.wait_exit_code() == 130


@pytest.mark.parametrize("columns", WIDTHS)
def test_results_follow_the_progress(start, columns):
    terminal = start("a", "b", columns=columns)
    output = terminal.read_rest()
    assert terminal.wait_exit_code() == 0
    screen = Screen(output, columns)
    assert screen.cursor_visible
    shown = without_times("".join(line.ljust(columns) for line in screen.lines)).split()
    assert " ".join(shown) == " ".join(["✓ Deleted: 2 of 2 sandboxes", *RESULTS])


@pytest.mark.parametrize("variables", PLAIN_ENVIRONMENTS, ids=str)
def test_no_escape_sequences_without_a_capable_terminal(start, variables):
    terminal = start("a", "bad", **variables)
    output = terminal.read_rest()
    assert terminal.wait_exit_code() == 1
    assert b"\x1b" not in output
    assert without_times(output.decode()).splitlines() == [
        RESULTS[0],
        "x sandbox bad: still exists [wait-timeout]",
        "x 1 of 2 sandboxes: failed: bad [temporary]",
        "  Run the same command again to continue.",
    ]


def test_results_are_on_stdout_and_failures_on_stderr_in_pipes(argv, environment):
    ended = subprocess.run(
        [*argv, "a", "bad", "b"], env=environment, capture_output=True, text=True, check=False
    )
    assert ended.returncode == 1
    assert ended.stdout.splitlines() == RESULTS
    assert "\x1b" not in ended.stderr
    assert "x sandbox bad: still exists [wait-timeout]" in ended.stderr


def test_quiet_prints_results_and_errors_only(argv, environment):
    ended = subprocess.run(
        [*argv, "-q", "a", "b"], env=environment, capture_output=True, text=True, check=True
    )
    assert (ended.stdout.splitlines(), ended.stderr) == (RESULTS, "")


def test_interrupt_reports_what_is_known_and_restores_the_terminal(start):
    terminal = start("a", "slow", "b")
    terminal.wait_for(rb"2 of 3 sandboxes")
    terminal.type("\x03")
    screen = Screen(terminal.read_rest(), 80)
    assert terminal.wait_exit_code() == 130
    assert screen.cursor_visible
    assert screen.lines[-4:] == [
        *RESULTS,
        "x interrupted after 2 of 3 sandboxes [interrupted]",
        "  Run the same command again to continue. Nothing was undone.",
    ]


def test_second_interrupt_does_not_wait_for_the_cleanup(start):
    terminal = start("a", "slow-to-stop")
    terminal.wait_for(rb"1 of 2 sandboxes")
    terminal.type("\x03")
    terminal.wait_for(rb"stopping")
    terminal.type("\x03")
    screen = Screen(terminal.read_rest(), 80)
    assert terminal.wait_exit_code() == 130
    assert screen.cursor_visible
    assert "x interrupted after 1 of 2 sandboxes [interrupted]" in screen.lines
