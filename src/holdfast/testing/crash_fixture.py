"""The pytest face of the crash matrix: one fixture, which prints the table and fails on any finding.

Not here: the matrix itself, which is loaded when a test asks for it (`crash`).
"""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from holdfast.testing.crash_report import Report


@pytest.fixture
def crash_matrix(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Iterator[Callable[..., Report]]:
    """Put a workflow through all kinds of trouble: `crash_matrix(build, …)`; see `holdfast.testing.crash`.

    With `random=N` it is killed at N random moments instead. A killed process loses nothing that the kernel
    has, so the cases live in memory where there is a place for that: no disk has to be waited for.
    """
    memory = Path("/dev/shm")  # noqa: S108  a directory of its own is made there
    inside = memory if os.access(memory, os.W_OK) else tmp_path
    root = Path(tempfile.mkdtemp(prefix="holdfast-crash-", dir=inside))

    def put_through(build: Callable[[Path], Any], *, random: int = 0, **options: Any) -> Report:
        from holdfast.testing.crash import CrashMatrix

        matrix = CrashMatrix(build, root, **options)
        report = matrix.run_random(random) if random else matrix.run()
        with capsys.disabled():
            print(f"\n{report}")  # noqa: T201  the table is what the test is for
        report.check()
        return report

    yield put_through
    shutil.rmtree(root, ignore_errors=True)
