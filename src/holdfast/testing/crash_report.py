"""What the crash matrix found: one finding a case, printed as a table; anything wrong is a failure.

Not here: how it was found (`crash_cases`).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import groupby
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable


@dataclass(frozen=True)
class Finding:
    """One case and how it ended."""

    group: str
    """the kind of trouble: killed, torn store, disk full, …"""
    case: str
    runs: tuple[int, ...]
    """exit codes of the runs, negative for a signal"""
    wrong: tuple[str, ...] = ()
    repeated: tuple[str, ...] = ()
    """steps that ran twice, and may: safe to repeat, or declared at-least-once"""
    log: str = ""
    reached: bool = True
    """whether the trouble came at all: a step that has nothing to do cannot be killed"""


@dataclass
class Report:
    """All findings over one workflow."""

    workflow: str
    at_least_once: tuple[str, ...] = ()
    findings: list[Finding] = field(default_factory=list)

    @property
    def failures(self) -> list[Finding]:
        return [finding for finding in self.findings if finding.wrong]

    def __str__(self) -> str:
        rows: list[tuple[str, ...]] = [
            ("trouble", "case", "runs", "converged", "effect twice", "ran again, as it may")
        ]
        for group, found in groupby(self.findings, key=lambda each: each.group):
            rows += [_row(group, finding) for finding in _folded(list(found))]
        widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
        lines = [
            "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
            for row in rows
        ]
        lines.insert(1, "  ".join("-" * width for width in widths))
        tried = [finding for finding in self.findings if finding.reached]
        good = len(tried) - len(self.failures)
        lines += [
            "",
            f"{self.workflow}: {good} of {len(tried)} cases converged without an effect twice",
        ]
        if len(tried) < len(self.findings):
            lines += [f"not reached, and so not tried: {len(self.findings) - len(tried)}"]
        if self.at_least_once:
            lines += [f"at least once, as declared: {', '.join(self.at_least_once)}"]
        return "\n".join(lines)

    def check(self) -> None:
        """Raise with everything that went wrong."""
        if self.failures:
            told = [
                f"{one.group}, {one.case}: {'; '.join(one.wrong)}\n{_tail(one.log)}" for one in self.failures
            ]
            raise AssertionError(
                f"{len(told)} of {len(self.findings)} crash cases failed\n\n" + "\n\n".join(told)
            )


_WIDEST = 60
KILLED = -9


def _fold(finding: Finding) -> tuple[str, bool, bool]:
    return finding.case.partition(",")[0], bool(finding.wrong), finding.reached


def _folded(findings: list[Finding]) -> Iterable[Finding]:
    """Good cases of one step in one line, bad ones each in a line of its own."""
    for name, found in groupby(findings, key=_fold):
        same = list(found)
        if len(same) == 1 or same[0].wrong:
            yield from same
            continue
        places = ", ".join(each.case.partition(", ")[2] for each in same)
        repeated = tuple(dict.fromkeys(step for each in same for step in each.repeated))
        runs = tuple(sorted({code for each in same for code in each.runs}))
        case = f"{name[0]}, {places}" if len(places) <= _WIDEST else f"{name[0]}, {len(same)} moments"
        yield Finding(same[0].group, case, runs, (), repeated, reached=same[0].reached)


def _row(group: str, finding: Finding) -> tuple[str, ...]:
    if not finding.reached:
        return (group, finding.case, "", "not reached", "", "")
    twice = [word for word in finding.wrong if "twice" in word]
    converged = "yes" if len(twice) == len(finding.wrong) else "NO"
    codes = " ".join("killed" if code == KILLED else str(code) for code in finding.runs)
    return (group, finding.case, codes, converged, "YES" if twice else "no", ", ".join(finding.repeated))


def _tail(log: str, lines: int = 15) -> str:
    return "\n".join(f"    {line}" for line in log.splitlines()[-lines:])
