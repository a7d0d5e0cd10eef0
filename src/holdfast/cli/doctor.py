"""`holdfast doctor`: what is wrong with a gateway, why, and what mends it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from holdfast.cli.options import json_option, name_argument
from holdfast.cli.progress import progress
from holdfast.cli.results import show

if TYPE_CHECKING:
    from collections.abc import Iterator

    from holdfast.gateway.doctor.findings import Diagnosis, Finding, Report

_MARKS = {"problem": ("x", "red"), "warning": ("!", "yellow"), "note": ("-", "cyan")}
_FEW = 8


@click.command()
@name_argument
@click.option(
    "--fix", is_flag=True, help="Mend what is safe to mend: nothing is deleted, nothing healthy stopped."
)
@click.option(
    "--bundle",
    type=click.Path(path_type=Path),
    metavar="FILE.tar.gz",
    help="Pack findings, logs and settings for a bug report; secrets are taken out.",
)
@json_option
@click.pass_context
def doctor(ctx: click.Context, name: str | None, fix: bool, bundle: Path | None, as_json: bool) -> None:
    """Find out what is wrong with gateway NAME: every finding has a code, a cause and a repair.

    Exit code 0: nothing is wrong. 1: --fix or the command that is named mends it. 3: a person is needed.
    """
    from holdfast.gateway.doctor.diagnosis import diagnose

    with progress(as_json=as_json) as shown:
        found = diagnose(name, shown.bus, fix=fix, bundle_to=bundle)
    show(found, list(_lines(found)), as_json=as_json)
    ctx.exit(found.report.exit_code)


def _lines(found: Diagnosis) -> Iterator[str]:
    for repair in found.repairs:
        mark = click.style("✓", fg="green") if repair.repaired else click.style("x", fg="red")
        word = "repaired" if repair.repaired else "not repaired"
        yield f"{mark} {repair.code} {repair.subject}: {word}: {repair.how}"
    if found.repairs:
        yield ""
    for finding in found.report.findings:
        yield from _of(finding)
    yield _summary(found.report)
    if found.report.skipped:
        yield "Not looked at: " + "; ".join(_skipped(found.report)) + "."
    if found.bundle:
        yield f"Bundle: {found.bundle}, only you can read it. Look into it before you send it. Inside:"
        yield "  " + ", ".join(found.bundled)


def _of(finding: Finding) -> Iterator[str]:
    mark, colour = _MARKS[finding.severity]
    yield click.style(f"{mark} {finding.code}", fg=colour) + f" {finding.subject}"
    yield f"    {finding.cause}"
    if finding.repair:
        yield f"    → {finding.repair}"


def _summary(report: Report) -> str:
    of = f"Gateway {report.gateway}" if report.gateway else "This machine"
    counts = [(len(report.of("problem")), "problem"), (len(report.of("warning")), "warning"),
              (len(report.of("note")), "note")]  # fmt: skip
    said = ", ".join(f"{count} {word}{'s' if count > 1 else ''}" for count, word in counts if count)
    return f"{of}: {said or 'nothing is wrong'} ({report.checks} checks, {report.seconds:.1f} s)."


def _skipped(report: Report) -> list[str]:
    """Checks that were left out, one entry for each reason."""
    by_reason: dict[str, list[str]] = {}
    for check, reason in report.skipped.items():
        by_reason.setdefault(reason, []).append(check)
    return [
        f"{', '.join(checks) if len(checks) <= _FEW else f'{len(checks)} checks'} ({reason})"
        for reason, checks in by_reason.items()
    ]
