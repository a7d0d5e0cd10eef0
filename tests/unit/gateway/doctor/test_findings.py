"""Exit code, order and JSON form of findings."""

import re
from pathlib import Path

import msgspec
import pytest

from holdfast.gateway.doctor.findings import note, problem, sort_findings, warning

FIXABLE = problem("a", "s", "c", fixed_by="fix", repair="r")
BY_COMMAND = problem("b", "s", "c", fixed_by="command", repair="r")
MANUAL = problem("c", "s", "c", fixed_by="person", repair="r")


@pytest.mark.parametrize(
    ("findings", "code"),
    [
        ((), 0),
        ((note("n", "s", "c"), warning("w", "s", "c", fixed_by="person")), 0),
        ((FIXABLE,), 1),
        ((FIXABLE, BY_COMMAND), 1),
        ((FIXABLE, MANUAL), 3),
    ],
)
def test_exit_code_reflects_required_action(report, findings, code):
    assert report(*findings).exit_code == code


def test_findings_are_sorted_with_problems_first():
    findings = [note("n", "s", "c"), MANUAL, warning("w", "s", "c"), FIXABLE]
    assert [finding.code for finding in sort_findings(findings)] == ["a", "c", "w", "n"]
    assert sort_findings(findings) == sort_findings(findings[::-1])


def test_json_fields_of_a_finding():
    assert msgspec.to_builtins(FIXABLE) == {
        "code": "a",
        "severity": "problem",
        "subject": "s",
        "cause": "C",
        "repair": "r",
        "fixed_by": "fix",
    }
    assert "fixed_by" not in msgspec.to_builtins(note("n", "s", "c"))


def test_reference_lists_every_code():
    root = Path(__file__).resolve().parents[4]
    page = (root / "docs" / "reference" / "doctor.md").read_text()
    sources = "".join(path.read_text() for path in (root / "src/holdfast/gateway/doctor").rglob("*.py"))
    codes = set(re.findall(r'\b(?:problem|warning|note)\(\s*"([a-z0-9-]+)"', sources))
    assert len(codes) > 30
    assert [code for code in sorted(codes) if f"`{code}`" not in page] == []
