"""Findings of `doctor`: a stable code, a severity, the cause and the repair."""

from __future__ import annotations

from functools import partial
from typing import Literal, TypeAlias

import msgspec

# `problem`: the gateway does not work; `warning`: it may stop working; `note`: information.
Severity: TypeAlias = Literal["problem", "warning", "note"]

# What repairs a finding: `doctor --fix`, the command in `repair`, a manual action, or nothing.
FixedBy: TypeAlias = Literal["fix", "command", "person", "none"]

# Code of the finding that reports a check which failed or timed out.
CHECK_FAILED = "check-failed"

_SEVERITY_ORDER = {"problem": 0, "warning": 1, "note": 2}
_EXIT_REPAIRABLE, _EXIT_MANUAL_ACTION = 1, 3


class Finding(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One observation of a check."""

    code: str
    severity: Severity
    subject: str
    cause: str
    repair: str = ""
    fixed_by: FixedBy = "none"


class Repair(msgspec.Struct, frozen=True, kw_only=True):
    """The result of `--fix` for one finding; `how` is the action taken, or the reason why there was none."""

    code: str
    subject: str
    repaired: bool
    how: str


class DoctorReport(msgspec.Struct, frozen=True, kw_only=True):
    """The result of one run of all checks; `skipped` maps the checks that could not run to the reason."""

    gateway: str
    findings: tuple[Finding, ...]
    checks: int
    seconds: float
    skipped: dict[str, str] = {}

    @property
    def codes(self) -> frozenset[str]:
        return frozenset(finding.code for finding in self.findings)

    @property
    def exit_code(self) -> int:
        """0: no problems; 1: `--fix` or the named commands repair all of them; 3: manual action required."""
        needed = {finding.fixed_by for finding in self.findings if finding.severity == "problem"}
        if needed & {"person", "none"}:
            return _EXIT_MANUAL_ACTION
        return _EXIT_REPAIRABLE if needed else 0


class Diagnosis(msgspec.Struct, frozen=True, kw_only=True):
    """The result of one `doctor` command; `before` is the report that `--fix` started from."""

    report: DoctorReport
    before: DoctorReport | None = None
    repairs: tuple[Repair, ...] = ()
    bundle: str = ""
    bundled: tuple[str, ...] = ()


def check_subject(check: str) -> str:
    """The subject of a finding about a check itself."""
    return f"check {check}"


def sort_findings(findings: list[Finding]) -> tuple[Finding, ...]:
    """Sort by severity, code and subject, so that the order does not depend on which check was faster."""
    return tuple(sorted(findings, key=lambda f: (_SEVERITY_ORDER[f.severity], f.code, f.subject)))


def new_finding(
    severity: Severity, code: str, subject: str, cause: str, *, fixed_by: FixedBy = "none", repair: str = ""
) -> Finding:
    """Create a finding; the cause starts with a capital letter, also where it is an error message."""
    cause = cause[:1].upper() + cause[1:]
    return Finding(
        code=code, severity=severity, subject=subject, cause=cause, fixed_by=fixed_by, repair=repair
    )


def up_command(gateway: str) -> str:
    """The sentence with the command that brings a gateway up."""
    return f"Run `holdfast up {gateway}`."


problem = partial(new_finding, "problem")
warning = partial(new_finding, "warning")
note = partial(new_finding, "note")
