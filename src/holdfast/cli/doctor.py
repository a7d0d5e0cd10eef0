"""`holdfast doctor`: diagnose a gateway, repair it, or collect a bundle for a bug report."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from holdfast.cli.click_extensions import flag_option, gateway_argument, json_option, verbose_option
from holdfast.cli.output import print_result, steps_renderer
from holdfast.cli.parameters import FILE

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from holdfast.gateway.doctor import Diagnosis, DoctorReport, Finding

_MARKS = {"problem": ("x", "red"), "warning": ("!", "yellow"), "note": ("-", "cyan")}
_MAX_LISTED_CHECKS = 8


@click.command()
@gateway_argument
@flag_option("--fix", text="Make the safe repairs; they delete nothing and stop nothing that is healthy.")
@click.option(
    "--bundle",
    type=FILE,
    metavar="FILE.tar.gz",
    help="Write findings, logs and settings to a file for a bug report; secrets are removed.",
)
@verbose_option
@json_option
@click.pass_context
def doctor(ctx: click.Context, name: str | None, fix: bool, bundle: Path | None, verbose: bool) -> None:
    """Diagnose gateway NAME: every finding has a code, a cause and a repair.

    Exit code 0: no problems. 1: --fix or the named commands repair all problems. 3: manual action required.
    """
    from holdfast.gateway.doctor import diagnose

    with steps_renderer(verbose=verbose) as renderer:
        diagnosis = diagnose(name, renderer.bus, fix=fix, bundle_to=bundle)
    print_result(diagnosis, list(_report_lines(diagnosis)))
    ctx.exit(diagnosis.report.exit_code)


def _report_lines(diagnosis: Diagnosis) -> Iterator[str]:
    for repair in diagnosis.repairs:
        mark = click.style("✓", fg="green") if repair.repaired else click.style("x", fg="red")
        outcome = "repaired" if repair.repaired else "not repaired"
        yield f"{mark} {repair.code} {repair.subject}: {outcome}: {repair.how}"
    if diagnosis.repairs:
        yield ""
    for finding in diagnosis.report.findings:
        yield from _finding_lines(finding)
    yield _summary(diagnosis.report)
    if diagnosis.report.skipped:
        yield "Skipped: " + "; ".join(_skipped_checks(diagnosis.report)) + "."
    if diagnosis.bundle:
        yield f"Bundle: {diagnosis.bundle}, readable only by you. Check its content before you send it:"
        yield "  " + ", ".join(diagnosis.bundled)


def _finding_lines(finding: Finding) -> Iterator[str]:
    mark, colour = _MARKS[finding.severity]
    yield click.style(f"{mark} {finding.code}", fg=colour) + f" {finding.subject}"
    yield f"    {finding.cause}"
    if finding.repair:
        yield f"    → {finding.repair}"


def _summary(report: DoctorReport) -> str:
    subject = f"Gateway {report.gateway}" if report.gateway else "This machine"
    severities: list[str] = [finding.severity for finding in report.findings]
    counts = [(severities.count(severity), severity) for severity in _MARKS]
    found = ", ".join(f"{count} {word}{'s' if count > 1 else ''}" for count, word in counts if count)
    return f"{subject}: {found or 'no problems'} ({report.checks} checks, {report.seconds:.1f} s)."


def _skipped_checks(report: DoctorReport) -> list[str]:
    """The skipped checks, one entry for each reason."""
    by_reason: dict[str, list[str]] = {}
    for check, reason in report.skipped.items():
        by_reason.setdefault(reason, []).append(check)
    return [
        f"{', '.join(checks) if len(checks) <= _MAX_LISTED_CHECKS else f'{len(checks)} checks'} ({reason})"
        for reason, checks in by_reason.items()
    ]
