"""The crash matrix detects flawed workflows and describes what it found."""

from __future__ import annotations

import functools
import subprocess
import sys
from pathlib import Path

import pytest

from holdfast.testing.crash import CrashMatrix, cases
from holdfast.testing.crash.cases import SCENARIOS

from .flawed_workflows import (
    all_steps_done,
    always_fails,
    appends_on_change,
    blocks_its_rerun,
    good,
    not_importable,
    only_at_first,
    probe_accepts_partial_effect,
    probe_misses_effect,
    some_steps_done,
    two_effects,
    undeclared_input,
)


def run_crash_matrix(build, tmp_path, **options):
    return CrashMatrix(build, tmp_path, kill_points=4, **{"scenarios": ["killed"], **options}).run()


def test_correct_workflow_passes(tmp_path):
    report = run_crash_matrix(good, tmp_path, scenarios=SCENARIOS)
    report.raise_for_failures()
    assert {finding.scenario for finding in report.findings} == {*SCENARIOS}
    assert [f.case for f in report.findings if not f.reached] == ["no other parameters were given"]
    assert "cases converged without a repeated effect" in str(report)


def test_only_named_steps_are_killed(tmp_path):
    report = run_crash_matrix(some_steps_done, tmp_path, steps=["a"])
    assert {finding.case.partition(",")[0] for finding in report.findings} == {"a"}


@pytest.mark.parametrize("steps", [["no-such-step"], "a"])
def test_unknown_steps_are_rejected(tmp_path, steps):
    with pytest.raises(ValueError, match="steps must be among"):
        run_crash_matrix(some_steps_done, tmp_path, steps=steps)


def test_repeated_effect_is_detected(tmp_path):
    report = run_crash_matrix(probe_misses_effect, tmp_path)
    assert "killed" in {finding.scenario for finding in report.failures}
    with pytest.raises(AssertionError, match="the effect of pay happened twice"):
        report.raise_for_failures()


def test_run_that_does_not_converge_is_detected(tmp_path):
    report = run_crash_matrix(blocks_its_rerun, tmp_path)
    with pytest.raises(AssertionError, match="not done after 5 runs") as caught:
        report.raise_for_failures()
    assert "FileExistsError" in str(caught.value)


def test_different_final_state_is_detected(tmp_path):
    report = run_crash_matrix(
        probe_accepts_partial_effect, tmp_path, observe=lambda world: (world / "file").read_text()
    )
    with pytest.raises(AssertionError, match="the observed state is '', not 'content'"):
        report.raise_for_failures()


def test_custom_effect_count_detects_repeat(tmp_path):
    count = {"effects": lambda world: {"mail-and-note": (world / "mails").read_text().count("sent")}}
    run_crash_matrix(two_effects, tmp_path / "unseen").raise_for_failures()
    with pytest.raises(AssertionError, match="the effect of mail-and-note happened twice"):
        run_crash_matrix(two_effects, tmp_path / "seen", **count).raise_for_failures()


def test_step_without_effect_is_listed_and_not_counted(tmp_path):
    report = run_crash_matrix(some_steps_done, tmp_path, scenarios=SCENARIOS)
    report.raise_for_failures()
    not_reached = [finding.case for finding in report.findings if not finding.reached]
    assert not_reached == ["there", "no other parameters were given"]
    tried = len(report.findings) - len(not_reached)
    assert f"partly: {tried} of {tried} cases converged" in str(report)
    assert "not reached" in str(report)


def test_kill_that_never_happened_is_not_a_success(tmp_path):
    report = run_crash_matrix(only_at_first, tmp_path)
    with pytest.raises(AssertionError, match="a: not killed; the run ended with 0"):
        report.raise_for_failures()


def test_workflow_without_killable_step_is_rejected(tmp_path):
    with pytest.raises(AssertionError, match="nothing can be killed"):
        run_crash_matrix(all_steps_done, tmp_path)


def test_changed_input_must_match_clean_run(tmp_path):
    colours = {"params": {"colour": "red"}, "changed_params": {"colour": "blue"}}
    report = run_crash_matrix(
        undeclared_input,
        tmp_path,
        scenarios=["changed input"],
        observe=lambda world: (world / "colour").read_text(),
        **colours,
    )
    with pytest.raises(AssertionError, match="the observed state is 'red', not 'blue'"):
        report.raise_for_failures()


def count_lines(world):
    path = world / "list"
    return {"enlist": len(path.read_text().splitlines()) if path.exists() else 0}


@pytest.mark.parametrize(
    ("told", "words"),
    [
        ({"effects": count_lines}, "the effect of enlist happened twice"),
        ({"observe": lambda world: (world / "list").read_text()}, r"state is 'x\\nx\\n', not 'x\\n'"),
    ],
)
def test_effect_repeated_by_changed_input_is_detected(tmp_path, told, words):
    """Nothing has to die for it: all was done, and the next run has other parameters."""
    colours = {"params": {"colour": "red"}, "changed_params": {"colour": "blue"}}
    report = run_crash_matrix(appends_on_change, tmp_path, scenarios=["changed input"], **told, **colours)
    assert "after a finished run" in [finding.case for finding in report.failures]
    with pytest.raises(AssertionError, match=words):
        report.raise_for_failures()


@pytest.mark.parametrize("trouble", ["disk full", "torn store"])
def test_every_fault_is_injected(tmp_path, trouble):
    """A run that had room enough, or whose store was whole, shows nothing."""
    report = run_crash_matrix(good, tmp_path, scenarios=[trouble])
    report.raise_for_failures()
    assert all(finding.reached for finding in report.findings)
    if trouble == "disk full":
        assert all(3 in finding.exit_codes for finding in report.findings), str(report)


def test_fault_that_never_happened_is_not_counted(tmp_path, monkeypatch):
    """A store whose log is gone cannot be hurt there, and no disk is full in a step that is not run."""
    monkeypatch.setattr(cases, "_run_until_killed", kill_and_lose_wal)
    monkeypatch.setattr(cases.CrashCase, "run", run_with_other_full_disk)
    report = run_crash_matrix(good, tmp_path, scenarios=["disk full", "torn store"])
    report.raise_for_failures()
    assert [finding.case for finding in report.findings if not finding.reached] == [
        "state.db-wal cut short",
        "state.db-wal a bit flipped",
        "in a",
    ]
    assert "not reached: 3" in str(report)


def kill_and_lose_wal(case, step, _real=cases._run_until_killed, **place):
    wrong = _real(case, step, **place)
    (case.home / "state.db-wal").unlink()
    return wrong


def run_with_other_full_disk(case, _real=cases.CrashCase.run, **job):
    return _real(case, **{key: "elsewhere" if key == "full_in" else value for key, value in job.items()})


def test_workflow_that_always_fails_is_reported(tmp_path):
    with pytest.raises(AssertionError, match="fails without faults"):
        run_crash_matrix(always_fails, tmp_path)


def local():
    def inside(world):
        return good(world)

    return inside


@pytest.mark.parametrize("build", [local(), functools.partial(good), not_importable, 5])
def test_function_that_child_processes_cannot_import(tmp_path, build):
    with pytest.raises(ValueError, match="at the top of a module"):
        run_crash_matrix(build, tmp_path)


@pytest.mark.parametrize("given", [{"params": {"path": Path("x")}}, {"changed_params": {1, 2}}])
def test_parameters_that_cannot_be_serialized(tmp_path, given):
    with pytest.raises(ValueError, match="JSON"):
        run_crash_matrix(good, tmp_path, **given)


def test_unknown_fault_is_rejected(tmp_path):
    with pytest.raises(ValueError, match="scenarios must be among"):
        run_crash_matrix(good, tmp_path, scenarios=["earthquake"])


USER_TEST_MODULE = """
from pathlib import Path
from holdfast.workflow import Step, Workflow, absent, done

def build(world: Path) -> Workflow:
    flow = Workflow("theirs")

    @flow.step(probe=lambda ctx: done() if (world / "x").exists() else absent())
    def make_x(ctx):
        (world / "x").write_text("x")

    return flow

def test_it(crash_matrix):
    crash_matrix(build, scenarios=["killed", "concurrent runs"])
"""


def test_pytest_plugin_in_user_project(tmp_path):
    """A project that has holdfast installed gets the fixture by its name."""
    (tmp_path / "test_theirs.py").write_text(USER_TEST_MODULE)
    argv = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_theirs.py"]
    ran = subprocess.run(argv, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "theirs: " in ran.stdout
    assert "cases converged without a repeated effect" in ran.stdout
