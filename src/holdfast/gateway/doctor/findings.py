"""What the checks found, as values: a stable code, how bad it is, why, and what mends it.

Not here: how anything is found out (checks/) or mended (repair.py).
"""

from __future__ import annotations

from typing import Literal, TypeAlias

import msgspec

Severity: TypeAlias = Literal["problem", "warning", "note"]
"""A problem keeps the gateway from working; a warning will, or is odd; a note is worth knowing."""

Mend: TypeAlias = Literal["fix", "command", "person", "none"]
"""Who mends it: `doctor --fix`, the command that `repair` names, a person who decides first, or nobody."""

CHECK_FAILED = "check-failed"
"""The code of a check that could not look."""

_ORDER = {"problem": 0, "warning": 1, "note": 2}


class Finding(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One thing that a check found."""

    code: str
    severity: Severity
    subject: str
    cause: str
    repair: str = ""
    mend: Mend = "none"


class Repair(msgspec.Struct, frozen=True, kw_only=True):
    """What `--fix` did about one finding; `how` says what was done, or why nothing was."""

    code: str
    subject: str
    repaired: bool
    how: str


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """One examination: what was found, and what could not be looked at and why."""

    gateway: str
    findings: tuple[Finding, ...]
    checks: int
    seconds: float
    skipped: dict[str, str] = {}

    def of(self, severity: Severity) -> tuple[Finding, ...]:
        return tuple(finding for finding in self.findings if finding.severity == severity)

    @property
    def codes(self) -> frozenset[str]:
        return frozenset(finding.code for finding in self.findings)

    @property
    def exit_code(self) -> int:
        """0: nothing is wrong; 1: `--fix` or the named command mends it; 3: a person is needed."""
        problems = self.of("problem")
        if any(finding.mend in ("person", "none") for finding in problems):
            return 3
        return 1 if problems else 0


class Diagnosis(msgspec.Struct, frozen=True, kw_only=True):
    """All that one `doctor` command has to say; `before` is what `--fix` set out from."""

    report: Report
    before: Report | None = None
    repairs: tuple[Repair, ...] = ()
    bundle: str = ""
    bundled: tuple[str, ...] = ()


def subject_of(check: str) -> str:
    """A check itself as what a finding is about."""
    return f"check {check}"


def ordered(findings: list[Finding]) -> tuple[Finding, ...]:
    """Problems first; the same order every time, whichever check was quicker."""
    return tuple(sorted(findings, key=lambda each: (_ORDER[each.severity], each.code, each.subject)))


def problem(code: str, subject: str, cause: str, *, mend: Mend, repair: str) -> Finding:
    return _finding(code, "problem", subject, cause, mend, repair)


def warning(code: str, subject: str, cause: str, *, mend: Mend = "none", repair: str = "") -> Finding:
    return _finding(code, "warning", subject, cause, mend, repair)


def note(code: str, subject: str, cause: str, *, repair: str = "") -> Finding:
    return _finding(code, "note", subject, cause, "none", repair)


def _finding(code: str, severity: Severity, subject: str, cause: str, mend: Mend, repair: str) -> Finding:
    """The cause as a sentence, also where it is an error's message."""
    said = cause[:1].upper() + cause[1:]
    return Finding(code=code, severity=severity, subject=subject, cause=said, mend=mend, repair=repair)
