"""`doctor` as one call, for whoever asks: look, mend if asked to, look again, and pack a bundle.

Not here: words for people (`cli`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.gateway.doctor.examination import examine
from holdfast.gateway.doctor.findings import Diagnosis, Finding, Repair, Report
from holdfast.gateway.doctor.opening import open_case
from holdfast.gateway.doctor.repair import mend

if TYPE_CHECKING:
    from pathlib import Path

    from holdfast.events import Bus


def diagnose(name: str | None, bus: Bus, *, fix: bool = False, bundle_to: Path | None = None) -> Diagnosis:
    """What is wrong with a gateway; with `fix`, what could be done about it and how it is afterwards."""
    from holdfast.gateway.doctor.bundle import check_target, write

    if bundle_to is not None:
        check_target(bundle_to)  # before anything is done, for a slip of the pen must cost nothing
    case = open_case(name)
    report = examine(case, bus)
    before: Report | None = None
    repairs: tuple[Repair, ...] = ()
    if fix:
        told = mend(case, report, bus)
        before, case = report, open_case(name)
        report = examine(case, bus)
        repairs = judged(before, report, told)
    packed: tuple[str, ...] = ()
    if bundle_to is not None:
        packed = write(bundle_to, case, report, bus)
    return Diagnosis(
        report=report,
        before=before,
        repairs=repairs,
        bundle=str(bundle_to.absolute()) if bundle_to is not None else "",
        bundled=packed,
    )


def judged(before: Report, after: Report, told: dict[Finding, str]) -> tuple[Repair, ...]:
    """Of each finding, whether it is gone: what was done about it is no proof."""
    still = {(finding.code, finding.subject) for finding in after.findings}
    return tuple(
        Repair(
            code=finding.code,
            subject=finding.subject,
            repaired=(finding.code, finding.subject) not in still,
            how=told[finding],
        )
        for finding in before.findings
        if finding in told
    )
