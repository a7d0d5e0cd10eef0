"""The crash matrix finds what it is there to find, and says so in words."""

from __future__ import annotations

import functools
import subprocess
import sys
from pathlib import Path

import pytest

from holdfast.testing import crash_cases
from holdfast.testing.crash import TROUBLES, CrashMatrix

from .bad_workflows import (
    all_there,
    appending,
    blind,
    broken,
    forgetful,
    good,
    nameless,
    only_at_first,
    partly_there,
    stuck,
    trusting,
    two_effects,
)


def put_through(build, tmp_path, **options):
    return CrashMatrix(build, tmp_path, moments=4, **{"troubles": ["killed"], **options}).run()


def test_a_good_one_passes(tmp_path):
    report = put_through(good, tmp_path, troubles=TROUBLES)
    report.check()
    assert {finding.group for finding in report.findings} == {*TROUBLES}
    assert [f.case for f in report.findings if not f.reached] == ["no other parameters were given"]
    assert "cases converged without an effect twice" in str(report)


def test_only_the_steps_that_were_named_are_cut(tmp_path):
    report = put_through(partly_there, tmp_path, steps=["a"])
    assert {finding.case.partition(",")[0] for finding in report.findings} == {"a"}


@pytest.mark.parametrize("steps", [["no-such-step"], "a"])
def test_steps_that_are_not_there_are_refused(tmp_path, steps):
    with pytest.raises(ValueError, match="steps are some of"):
        put_through(partly_there, tmp_path, steps=steps)


def test_an_effect_that_happened_twice(tmp_path):
    report = put_through(blind, tmp_path)
    assert "killed" in {finding.group for finding in report.failures}
    with pytest.raises(AssertionError, match="the effect of pay happened twice"):
        report.check()


def test_a_run_that_does_not_converge(tmp_path):
    report = put_through(stuck, tmp_path)
    with pytest.raises(AssertionError, match="not done after 5 runs") as caught:
        report.check()
    assert "FileExistsError" in str(caught.value)


def test_a_world_that_ends_up_different(tmp_path):
    report = put_through(trusting, tmp_path, observe=lambda world: (world / "file").read_text())
    with pytest.raises(AssertionError, match="the world is '', not 'content'"):
        report.check()


def test_the_worlds_own_count(tmp_path):
    count = {"effects": lambda world: {"mail-and-note": (world / "mails").read_text().count("sent")}}
    put_through(two_effects, tmp_path / "unseen").check()
    with pytest.raises(AssertionError, match="the effect of mail-and-note happened twice"):
        put_through(two_effects, tmp_path / "seen", **count).check()


def test_a_step_that_has_nothing_to_do_is_shown_and_not_counted(tmp_path):
    report = put_through(partly_there, tmp_path, troubles=TROUBLES)
    report.check()
    not_reached = [finding.case for finding in report.findings if not finding.reached]
    assert not_reached == ["there", "no other parameters were given"]
    tried = len(report.findings) - len(not_reached)
    assert f"partly: {tried} of {tried} cases converged" in str(report)
    assert "not reached" in str(report)


def test_a_kill_that_never_came_is_not_taken_for_a_success(tmp_path):
    report = put_through(only_at_first, tmp_path)
    with pytest.raises(AssertionError, match="it was not killed in a: the run ended with 0"):
        report.check()


def test_nothing_to_kill(tmp_path):
    with pytest.raises(AssertionError, match="there is nothing to kill"):
        put_through(all_there, tmp_path)


def test_a_changed_input_must_end_as_if_it_had_been_so_from_the_start(tmp_path):
    colours = {"params": {"colour": "red"}, "changed": {"colour": "blue"}}
    report = put_through(
        forgetful,
        tmp_path,
        troubles=["changed input"],
        observe=lambda world: (world / "colour").read_text(),
        **colours,
    )
    with pytest.raises(AssertionError, match="the world is 'red', not 'blue'"):
        report.check()


def count_lines(world):
    path = world / "list"
    return {"enlist": len(path.read_text().splitlines()) if path.exists() else 0}


@pytest.mark.parametrize(
    ("told", "words"),
    [
        ({"effects": count_lines}, "the effect of enlist happened twice"),
        ({"observe": lambda world: (world / "list").read_text()}, r"the world is 'x\\nx\\n', not 'x\\n'"),
    ],
)
def test_an_effect_that_a_changed_input_doubles(tmp_path, told, words):
    """Nothing has to die for it: all was done, and the next run has other parameters."""
    colours = {"params": {"colour": "red"}, "changed": {"colour": "blue"}}
    report = put_through(appending, tmp_path, troubles=["changed input"], **told, **colours)
    assert "after a finished run" in [finding.case for finding in report.failures]
    with pytest.raises(AssertionError, match=words):
        report.check()


@pytest.mark.parametrize("trouble", ["disk full", "torn store"])
def test_every_trouble_comes(tmp_path, trouble):
    """A run that had room enough, or whose store was whole, shows nothing."""
    report = put_through(good, tmp_path, troubles=[trouble])
    report.check()
    assert all(finding.reached for finding in report.findings)
    if trouble == "disk full":
        assert all(3 in finding.runs for finding in report.findings), str(report)


def test_a_trouble_that_never_came_is_not_counted(tmp_path, monkeypatch):
    """A store whose log is gone cannot be hurt there, and no disk is full in a step that is not run."""
    monkeypatch.setattr(crash_cases, "_killed", killed_and_lost)
    monkeypatch.setattr(crash_cases.Case, "run", run_elsewhere)
    report = put_through(good, tmp_path, troubles=["disk full", "torn store"])
    report.check()
    assert [finding.case for finding in report.findings if not finding.reached] == [
        "state.db-wal cut short",
        "state.db-wal a bit flipped",
        "in a",
    ]
    assert "not reached, and so not tried: 3" in str(report)


def killed_and_lost(case, step, _real=crash_cases._killed, **place):
    wrong = _real(case, step, **place)
    (case.home / "state.db-wal").unlink()
    return wrong


def run_elsewhere(case, _real=crash_cases.Case.run, **job):
    return _real(case, **{key: "elsewhere" if key == "full_in" else value for key, value in job.items()})


def test_a_workflow_that_fails_anyway(tmp_path):
    with pytest.raises(AssertionError, match="fails without any trouble"):
        put_through(broken, tmp_path)


def local():
    def inside(world):
        return good(world)

    return inside


@pytest.mark.parametrize("build", [local(), functools.partial(good), nameless, 5])
def test_a_function_that_children_cannot_import(tmp_path, build):
    with pytest.raises(ValueError, match="at the top of a module"):
        put_through(build, tmp_path)


@pytest.mark.parametrize("given", [{"params": {"path": Path("x")}}, {"changed": {1, 2}}])
def test_parameters_that_children_cannot_be_given(tmp_path, given):
    with pytest.raises(ValueError, match=f"{next(iter(given))} are handed to children as JSON"):
        put_through(good, tmp_path, **given)


def test_a_trouble_that_there_is_not(tmp_path):
    with pytest.raises(ValueError, match="troubles are some of"):
        put_through(good, tmp_path, troubles=["earthquake"])


THEIRS = """
from pathlib import Path
from holdfast.engine import Step, Workflow, absent, done

def build(world: Path) -> Workflow:
    flow = Workflow("theirs")

    @flow.step(probe=lambda ctx: done() if (world / "x").exists() else absent())
    def make_x(ctx):
        (world / "x").write_text("x")

    return flow

def test_it(crash_matrix):
    crash_matrix(build, troubles=["killed", "two runs at once"])
"""


def test_as_a_plugin_for_anybody(tmp_path):
    """A project that has holdfast installed gets the fixture by its name."""
    (tmp_path / "test_theirs.py").write_text(THEIRS)
    argv = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_theirs.py"]
    ran = subprocess.run(argv, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "theirs: " in ran.stdout
    assert "cases converged without an effect twice" in ran.stdout
