"""What `sandbox cp` reports while it copies: bytes and speed."""

import pytest

from holdfast.cli.sandbox import cp

MIB = 1 << 20


class RecordingStep:
    def __init__(self):
        self.reports = []

    def progress(self, message, fraction=None):
        self.reports.append((message, fraction))


@pytest.mark.parametrize(
    ("total", "expected"),
    [(8 * MIB, ("4.0 MiB of 8.0 MiB, 2.0 MiB/s", 0.5)), (0, ("4.0 MiB, 2.0 MiB/s", None))],
)
def test_progress_contains_the_speed(monkeypatch, total, expected):
    now = [100.0]
    monkeypatch.setattr(cp.time, "monotonic", lambda: now[0])
    step = RecordingStep()
    report = cp._progress_callback(step, total)
    now[0] += 2
    report(4 * MIB)
    assert step.reports == [expected]
