"""The pytest face of the crash matrix: one fixture, which prints the table and fails on any finding.

Not here: the matrix itself, which is loaded when a test asks for it (`crash`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from holdfast.testing.crash_report import Report


@pytest.fixture
def crash_matrix(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Callable[..., Report]:
    """Put a workflow through all kinds of trouble: `crash_matrix(build, …)`; see `holdfast.testing.crash`.

    With `random=N` it is killed at N random moments instead.
    """

    def put_through(build: Callable[[Path], Any], *, random: int = 0, **options: Any) -> Report:
        from holdfast.testing.crash import CrashMatrix

        matrix = CrashMatrix(build, tmp_path / "crash-matrix", **options)
        report = matrix.run_random(random) if random else matrix.run()
        with capsys.disabled():
            print(f"\n{report}")  # noqa: T201  the table is what the test is for
        report.check()
        return report

    return put_through
