"""`holdfast sandbox suspend`: confirmation and result."""

import io
from contextlib import contextmanager

import pytest
from tests.support.stubs import stub

from holdfast.api import Phase, SandboxView, WorkspaceView
from holdfast.cli import cli
from holdfast.cli.output import progress_renderer, run_command
from holdfast.cli.sandbox import suspend_resume

NOTE = "the sandbox has no workspace: its files are deleted with the pod"
WORKSPACE = WorkspaceView(pvc="workspace-a", size="2Gi")


class RunningSandbox:
    """A sandbox that is ready; records whether it was suspended."""

    name = "a"

    def __init__(self, workspace):
        self.workspace = workspace
        self.is_suspended = False

    def get(self):
        return SandboxView(name="a", id="1", phase=Phase.READY, workspace=self.workspace)

    def suspend(self):
        self.is_suspended = True
        notes = [] if self.workspace else [NOTE]
        return SandboxView(name="a", id="1", phase=Phase.PENDING, workspace=self.workspace, notes=notes)


class Keyboard(io.StringIO):
    """A terminal on which the user has typed an answer."""

    def isatty(self):
        return True


@pytest.fixture
def suspend(monkeypatch):
    """Run `sandbox suspend` for a sandbox; return its exit code."""

    def run(sandbox, *options, stdin):
        @contextmanager
        def open_sandbox(_name, _gateway):
            with progress_renderer() as renderer:
                yield sandbox, renderer

        stub(monkeypatch, suspend_resume, "open_sandbox", open_sandbox)
        monkeypatch.setattr("sys.stdin", stdin)
        return run_command(cli, ["sandbox", "suspend", "a", "--no-wait", *options])

    return run


@pytest.mark.parametrize(("answer", "exit_code"), [("y\n", 0), ("n\n", 2), ("\n", 2), ("", 130)])
def test_suspension_that_deletes_files_asks_on_a_terminal(suspend, capsys, answer, exit_code):
    sandbox = RunningSandbox(workspace=None)
    assert suspend(sandbox, stdin=Keyboard(answer)) == exit_code
    assert "It has no workspace: its files are deleted. [y/N]" in "".join(capsys.readouterr())
    assert sandbox.is_suspended is (exit_code == 0)


@pytest.mark.parametrize(
    ("workspace", "options", "stdin"),
    [(WORKSPACE, (), Keyboard()), (None, ("--yes",), Keyboard()), (None, (), io.StringIO())],
    ids=["with workspace", "--yes", "script"],
)
def test_other_suspensions_do_not_ask(suspend, capsys, workspace, options, stdin):
    sandbox = RunningSandbox(workspace)
    assert suspend(sandbox, *options, stdin=stdin) == 0
    assert sandbox.is_suspended
    assert capsys.readouterr().out.splitlines()[1:] == ([] if workspace else [NOTE])
