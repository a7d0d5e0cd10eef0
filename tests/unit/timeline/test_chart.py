"""The axis and the number of shapes that are drawn."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from holdfast.timeline.chart import step_bar, tick_interval
from holdfast.timeline.format import count, format_difference, format_seconds
from holdfast.timeline.model import RetryMark, TimelineStep


@pytest.mark.parametrize(
    ("length", "interval"),
    [(0.001, 0.0002), (1, 0.2), (5.9, 1), (42, 10), (61, 15), (700, 120), (90_000, 28_800)],
)
def test_tick_intervals_are_round(length, interval):
    assert tick_interval(length) == pytest.approx(interval)


@given(st.floats(0.001, 1e8))
def test_axis_has_a_readable_number_of_ticks(length):
    assert 1 <= length / tick_interval(length) <= 12


def step_with(retries):
    return TimelineStep(
        name="x", title="x", state="finished", start=0.0, seconds=10_000.0, lane=0, retries=tuple(retries)
    )


def test_ten_thousand_attempts_are_a_small_drawing():
    marks = [RetryMark(attempt=n, reason="reset", at=float(n), delay=0.5, waited=0.5) for n in range(10_000)]
    drawing = step_bar(step_with(marks), 10_000.0)
    assert len(drawing) < 60_000
    assert 50 < drawing.count("<circle") < 150


def test_distinct_retries_are_drawn_one_by_one():
    marks = [RetryMark(attempt=n, reason="reset", at=2000.0 * n, delay=900, waited=900) for n in (1, 2, 3)]
    drawing = step_bar(step_with(marks), 10_000.0)
    assert drawing.count("<circle") == 3
    assert drawing.count('class="wait"') == 3
    assert 'x="20%"' in drawing
    assert 'width="9%"' in drawing


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0 ms"), (0.000021, "21 µs"), (0.24, "240 ms"), (0.9996, "1.00 s"), (3.416, "3.42 s"),
        (42.04, "42.0 s"),
        (59.97, "1 min 00 s"), (65, "1 min 05 s"), (3599.7, "1 h 00 min"), (7800, "2 h 10 min"),
    ],
)  # fmt: skip
def test_durations_as_text(seconds, text):
    assert format_seconds(seconds) == text


@pytest.mark.parametrize(
    ("seconds", "text"), [(0, "0"), (2, "2 s"), (0.5, "500 ms"), (120, "2 min"), (3600, "1 h")]
)
def test_round_durations_as_text(seconds, text):
    assert format_seconds(seconds, exact=True) == text


def test_differences_and_counts_as_text():
    assert [format_difference(each) for each in (0.0001, 1.5, -0.2)] == ["±0", "+1.50 s", "-200 ms"]
    assert [count(1, "retry"), count(2, "retry"), count(1200, "step")] == [
        "1 retry",
        "2 retries",
        "1,200 steps",
    ]
