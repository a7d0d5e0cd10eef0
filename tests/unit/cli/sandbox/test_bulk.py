"""Commands for several sandboxes: selection, confirmation, outcomes and exit codes."""

import asyncio
import io
import json
from contextlib import contextmanager

import msgspec
import pytest
from tests.support.stubs import stub

from holdfast.api import DeletionResult, Phase, SandboxView, WorkspaceView
from holdfast.cli import cli
from holdfast.cli.output import progress_renderer, run_command
from holdfast.cli.sandbox import delete, suspend_resume
from holdfast.cli.sandbox.bulk import BulkReport
from holdfast.client.bulk import run_for_each
from holdfast.errors import GatewayUnreachableError, SandboxNotFoundError

MISSING_HINT = "Run `holdfast sandbox list` to list all sandboxes."


class FakeSandboxes:
    """The client for all sandboxes, with these phases by name; `gone` answers 404, `trouble` fails all."""

    def __init__(self, *names, trouble=None):
        self.views = {
            name: SandboxView(
                name=name,
                id=name,
                phase=Phase.READY,
                workspace=None if name.startswith("bare") else WorkspaceView(pvc=f"workspace-{name}"),
            )
            for name in names
        }
        self.trouble, self.changed, self.selector = trouble, [], None

    def list(self, *, selector=None):
        self.selector = selector
        return iter([view for name, view in self.views.items() if selector != "team=red"])

    def get(self, names):
        return self._run(names, lambda view: view)

    def delete(self, names, *, keep_workspace, ignore_missing, wait, timeout, on_outcome):
        def remove(view):
            self.changed.append(view.name)
            return DeletionResult(deleted=True, workspace="kept" if keep_workspace else "deleted", pvc="p")

        return self._run(names, remove, on_outcome)

    def suspend(self, names, *, wait, timeout, on_outcome):
        def suspend(view):
            self.changed.append(view.name)
            notes = [] if view.workspace else ["a note"]
            return msgspec.structs.replace(view, phase=Phase.SUSPENDED, notes=notes)

        return self._run(names, suspend, on_outcome)

    def resume(self, names, *, wait, timeout, on_outcome):
        return self._run(names, lambda view: view, on_outcome)

    def wait(self, names, phase, *, timeout, on_outcome):
        return self._run(names, lambda view: view, on_outcome)

    def wait_gone(self, names, *, timeout, on_outcome):
        return self._run(names, lambda _view: None, on_outcome)

    def _run(self, names, change, on_outcome=None):
        async def operate(name):
            if self.trouble:
                raise self.trouble
            if name not in self.views:
                raise SandboxNotFoundError(f"sandbox {name}: not found\x1b[31m", hint=MISSING_HINT)
            return change(self.views[name])

        return asyncio.run(run_for_each(names, operate, on_outcome))


class Keyboard(io.StringIO):
    """A terminal on which the user has typed an answer."""

    def isatty(self):
        return True


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("HOLDFAST_HOME", str(tmp_path))


@pytest.fixture
def run(monkeypatch, capsys):
    """Run a command of `holdfast sandbox` with these sandboxes; return its exit code, stdout and stderr."""

    def run(sandboxes, *words, stdin=None):
        @contextmanager
        def open_sandboxes(_gateway):
            with progress_renderer() as renderer:
                yield sandboxes, renderer

        for module in (delete, suspend_resume):
            stub(monkeypatch, module, "open_sandboxes", open_sandboxes)
        monkeypatch.setattr("sys.stdin", stdin or io.StringIO())
        exit_code = run_command(cli, ["sandbox", *words])
        return exit_code, *capsys.readouterr()

    return run


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["delete", "--yes"], "NAME: missing; nothing was changed"),
        (["wait"], "Name the sandboxes, or pass --all or --selector."),
        (["delete", "a", "--all"], "NAME and --all: cannot be combined"),
        (["suspend", "a", "b", "-l", "x=y"], "NAME and --selector: cannot be combined"),
        (["resume", "--all", "--selector", "x=y"], "--all and --selector: cannot be combined"),
        (["delete", "a", "Bad_Name", "--yes"], "not a valid sandbox name"),
        (["delete", "a", "", "--yes"], "not a valid sandbox name"),
        (["list", "-o", "yaml", "--json"], "--output yaml: cannot be combined with --json"),
        (["get", "a", "--json", "-o", "name"], "--output name: cannot be combined with --json"),
        (["delete", "a", "b"], "deleting several sandboxes: has to be confirmed; nothing was changed"),
        (["delete", "--all", "--timeout", "-1"], "--timeout"),
    ],
)
def test_invalid_arguments_are_rejected_before_the_gateway_is_asked(capsys, words, message):
    """There is no gateway here: a command that asks it fails with another message."""
    assert run_command(cli, ["sandbox", *words]) == 2
    assert message in capsys.readouterr().err


def test_output_json_is_the_same_as_json_also_for_usage_errors(capsys):
    for words in (["--json", "--nonsense"], ["-o", "json", "--nonsense"], ["--output=json", "--nonsense"]):
        assert run_command(cli, ["sandbox", "list", *words]) == 2
        assert json.loads(capsys.readouterr().err)["code"] == "usage"


def test_failures_do_not_stop_the_others_and_are_named(run):
    exit_code, out, err = run(FakeSandboxes("a", "c"), "delete", "a", "b", "c", "d", "--yes")
    assert exit_code == 1
    assert out.splitlines() == [
        "Sandbox a is deleted. Its workspace is deleted.",
        "Sandbox c is deleted. Its workspace is deleted.",
    ]
    assert err.splitlines() == [
        "x sandbox b: not found\\x1b[31m [sandbox-missing]",
        "x sandbox d: not found\\x1b[31m [sandbox-missing]",
        "x 2 of 4 sandboxes: failed: b, d [temporary]",
        f"  {MISSING_HINT}",
    ]


def test_result_in_json_is_one_report(run):
    exit_code, out, err = run(FakeSandboxes("a"), "delete", "a", "b", "--yes", "--keep-workspace", "--json")
    assert exit_code == 1
    report = msgspec.json.decode(out, type=BulkReport)
    assert report.failed == ["b"]
    good, bad = report.outcomes
    assert msgspec.convert(good.result, DeletionResult) == DeletionResult(
        deleted=True, workspace="kept", pvc="p"
    )
    assert (good.code, good.error, good.hint) == (None, None, None)
    assert (bad.result, bad.code, bad.hint) == (None, "sandbox-missing", MISSING_HINT)
    events = [json.loads(line) for line in err.splitlines()]
    assert [event["message"] for event in events if event["event"] == "step.progress"] == [
        "0 of 2 sandboxes", "1 of 2 sandboxes", "2 of 2 sandboxes, 1 failed",
    ]  # fmt: skip
    assert events[-1] == {
        "event": "error",
        "code": "temporary",
        "error": "1 of 2 sandboxes: failed: b",
        "hint": MISSING_HINT,
        "exit_code": 1,
        "run": "",
    }


@pytest.mark.parametrize("words", [["delete", "--yes"], ["suspend"], ["resume"], ["wait"]])
@pytest.mark.parametrize("option", [["--all"], ["-l", "team=blue"]], ids=" ".join)
def test_selected_sandboxes_are_sorted_and_reported_on_one_line_each(run, words, option):
    sandboxes = FakeSandboxes("b", "a")
    exit_code, out, err = run(sandboxes, *words, *option)
    assert exit_code == 0, err
    assert [line.split()[:2] for line in out.splitlines()] == [["Sandbox", "a"], ["Sandbox", "b"]]
    assert sandboxes.selector == (None if option == ["--all"] else "team=blue")
    assert ": 2 of 2 sandboxes" in err


@pytest.mark.parametrize("words", [["delete", "--yes"], ["suspend"], ["resume"], ["wait"]])
def test_selection_without_matches_is_a_success_that_says_so(run, words):
    assert run(FakeSandboxes(), *words, "--all") == (0, "No sandboxes found.\n", "")
    assert run(FakeSandboxes("a"), *words, "-l", "team=red") == (
        0, "No sandboxes match the selector team=red.\n", "",
    )  # fmt: skip
    assert run(FakeSandboxes(), *words, "--all", "--json") == (0, '{"outcomes":[],"failed":[]}\n', "")


def test_one_match_of_a_selector_has_the_result_of_several(run):
    exit_code, out, _ = run(FakeSandboxes("a"), "wait", "-l", "team=blue", "--for", "deleted", "--json")
    assert exit_code == 0
    (outcome,) = json.loads(out)["outcomes"]
    assert outcome["result"] == {"name": "a", "deleted": True}


def test_error_that_all_have_in_common_is_reported_once_with_its_exit_code(run):
    sandboxes = FakeSandboxes("a", "b", trouble=GatewayUnreachableError("gateway dev: does not answer"))
    exit_code, out, err = run(sandboxes, "resume", "a", "b")
    assert (exit_code, out) == (1, "")
    assert err.splitlines()[:1] == ["x gateway dev: does not answer [gateway-unreachable]"]
    assert err.count("does not answer") == 1
    exit_code, out, _ = run(sandboxes, "resume", "a", "b", "--json")
    assert (exit_code, json.loads(out)["failed"]) == (1, ["a", "b"])


def test_deletion_of_several_lists_them_and_asks(run):
    sandboxes = FakeSandboxes("a", "bare")
    exit_code, out, err = run(sandboxes, "delete", "a", "bare", "gone", stdin=Keyboard("n\n"))
    assert exit_code == 2
    assert err.splitlines()[:3] == [
        "  a: all data in its workspace (PVC workspace-a) is deleted",
        "  bare: it has no workspace",
        "  gone: does not exist",
    ]
    assert "Delete 3 sandboxes? [y/N]" in out + err
    assert "delete 3 sandboxes: not confirmed; nothing was changed" in err
    assert sandboxes.changed == []
    assert run(sandboxes, "delete", "--all", stdin=Keyboard("y\n"))[0] == 0
    assert sandboxes.changed == ["a", "bare"]


def test_unreachable_gateway_is_reported_instead_of_a_question(run):
    sandboxes = FakeSandboxes("a", "b", trouble=GatewayUnreachableError("gateway dev: does not answer"))
    exit_code, out, err = run(sandboxes, "delete", "a", "b", stdin=Keyboard("y\n"))
    assert exit_code == 1
    assert "?" not in out + err


def test_suspension_asks_only_about_sandboxes_that_lose_their_files(run):
    sandboxes = FakeSandboxes("a", "bare-b")
    exit_code, out, err = run(sandboxes, "suspend", "--all", stdin=Keyboard("\n"))
    assert exit_code == 2
    assert err.splitlines()[0] == "  bare-b: it has no workspace: its files are deleted"
    assert "Suspend 2 sandboxes? [y/N]" in out + err
    assert sandboxes.changed == []
    exit_code, out, _ = run(sandboxes, "suspend", "a", "bare-b", "--yes", stdin=Keyboard())
    assert exit_code == 0
    assert out.splitlines() == ["Sandbox a is suspended.", "Sandbox bare-b is suspended; a note."]
    assert run(FakeSandboxes("a", "b"), "suspend", "--all", stdin=Keyboard())[0] == 0
