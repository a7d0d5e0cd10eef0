"""The report of a crash matrix: a table of its cases, and an error that names every failed one."""

import pytest

from holdfast.testing.crash import CrashReport
from holdfast.testing.crash.matrix import CrashFinding


def report(*findings, **options):
    return CrashReport("demo", findings=list(findings), **options)


def test_cases_of_one_step_share_a_row():
    before = CrashFinding("killed", "pull, before", (-9, 0))
    after = CrashFinding("killed", "pull, after", (-9, 0), repeated=("pull",))
    lines = str(report(before, after)).splitlines()
    (row,) = (line for line in lines if line.startswith("killed"))
    assert "pull, before, after" in row
    assert "demo: 2 of 2 cases converged without a repeated effect" in lines


def test_failed_case_keeps_its_row_and_raises_with_its_log():
    failed = CrashFinding("torn store", "pull, after", (1,), ("did not converge",), log="first\nlast")
    shown = report(failed, CrashFinding("torn store", "pull, before", (0,)))
    assert "NO" in str(shown)
    with pytest.raises(AssertionError, match=r"1 of 2 crash cases failed[\s\S]*did not converge[\s\S]*last"):
        shown.raise_for_failures()


def test_case_that_was_not_reached_counts_as_neither():
    missed = CrashFinding("killed", "pull", (), reached=False)
    text = str(report(missed, at_least_once=("send",)))
    assert "0 of 0 cases" in text
    assert "not reached: 1" in text
    assert "declared at-least-once: send" in text
    report(missed).raise_for_failures()
