"""Drawings of a timeline as SVG: the axis, the bar of a step, and the lanes of all steps.

Positions are percentages of the width, so the browser scales them without a script.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from holdfast.timeline.format import format_seconds
from holdfast.timeline.markup import Markup, element

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from holdfast.timeline.model import RetryMark, Timeline, TimelineStep

BAR_HEIGHT = 24
LANE_HEIGHT = 14
MAX_LANES = 24
# Percent of the width: a shorter bar would be invisible, and marks that are closer would cover each other.
_MIN_WIDTH = 0.3
_MERGED_WIDTH = 0.15
_MARK_DISTANCE = 0.8
_TICKS = 6
_MAX_LABEL = 120
_STEPS = (1, 2, 5, 10)
_MINUTE_STEPS = (15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 28800, 86400)
_MIN_MINUTE_SECONDS = 60
_LAST_LABEL = 97.0


def tick_interval(length: float) -> float:
    """Return the distance of the ticks of an axis, in seconds."""
    wanted = length / _TICKS
    if length >= _MIN_MINUTE_SECONDS:
        for interval in _MINUTE_STEPS:
            if interval >= wanted:
                return float(interval)
        return math.ceil(wanted / 86400) * 86400.0
    power = 10.0 ** math.floor(math.log10(wanted))
    return next((step * power for step in _STEPS if step * power >= wanted), 10 * power)


def axis(length: float) -> Markup:
    """Return the labels of the time axis."""
    interval = tick_interval(length)
    labels = []
    for number in range(int(length / interval) + 1):
        position = _percent(number * interval, length)
        if position < _LAST_LABEL:
            labels.append(
                element(
                    "text", format_seconds(number * interval, exact=True), x=f"{position:.6g}%", y=14,
                    dx=0 if number == 0 else 4,
                )
            )  # fmt: skip
    return element("svg", labels, class_="axis", height=20, aria_hidden="true")


def step_bar(step: TimelineStep, length: float) -> Markup:
    """Return the bar of a step, with its queueing time, waits, retries, and the earlier duration below it."""
    shapes = []
    if step.queued:
        shapes.append(_rect("queued", step.start - step.queued, step.queued, length, y=11, height=2))
    shapes.append(_rect(f"bar {bar_class(step)}", step.start, step.seconds, length, y=4, height=14, rx=3))
    shapes += [
        _rect("wait", start, seconds, length, y=4, height=14) for start, seconds in _waits(step, length)
    ]
    shapes += [
        element("circle", element("title", label), class_="retry", cx=f"{position:.6g}%", cy=11, r=4)
        for position, label in _marks(step.retries, length)
    ]
    if step.earlier is not None:
        shapes.append(
            _rect("earlier", step.start, min(step.earlier, length - step.start), length, y=20, height=3)
        )
    return element("svg", shapes, class_="chart", height=BAR_HEIGHT, aria_hidden="true")


def lanes(timeline: Timeline) -> Markup:
    """Return all steps in lanes: steps in one column ran at the same time."""
    shapes = []
    for number in range(min(timeline.lanes, MAX_LANES)):
        steps = [step for step in timeline.steps if step.lane == number]
        y = number * LANE_HEIGHT + 2
        for state, start, seconds in _merged_states(steps, timeline.length):
            shapes.append(
                _rect(f"bar {state}", start, seconds, timeline.length, y=y, height=LANE_HEIGHT - 4, rx=2)
            )
        waits = (wait for step in steps for wait in _waits(step, timeline.length))
        shapes += [
            _rect("wait", start, seconds, timeline.length, y=y, height=LANE_HEIGHT - 4)
            for start, seconds in waits
        ]
    label = f"Lanes of concurrent steps: at most {timeline.concurrency} at the same time."
    height = min(timeline.lanes, MAX_LANES) * LANE_HEIGHT
    return element("svg", shapes, class_="chart lanes", height=height, role="img", aria_label=label)


def legend_swatch(kind: str) -> Markup:
    """Return the sample of a bar for the legend."""
    if kind == "retry":
        shape = element("circle", class_="retry", cx=9, cy=6, r=4)
    else:
        height = {"queued": 2, "earlier": 3}.get(kind, 10)
        shape = element("rect", class_=kind, x=0, y=(12 - height) / 2, width=18, height=height, rx=2)
    return element("svg", shape, class_="swatch", width=18, height=12, aria_hidden="true")


def bar_class(step: TimelineStep) -> str:
    """Return the class of the bar of a step."""
    state = step.state.replace(" ", "-")
    return f"{state} critical" if step.is_critical and step.state in {"finished", "skipped"} else state


def _percent(seconds: float, length: float) -> float:
    return min(max(100 * seconds / length, 0.0), 100.0)


def _rect(class_: str, start: float, seconds: float, length: float, **attributes: float) -> Markup:
    width = max(_percent(seconds, length), _MIN_WIDTH)
    x = min(_percent(start, length), 100.0 - width)
    return element("rect", class_=class_, x=f"{x:.6g}%", width=f"{width:.6g}%", **attributes)


def _waits(step: TimelineStep, length: float) -> Iterator[tuple[float, float]]:
    """The waits between attempts, with waits that are too close to be told apart merged."""
    known = [(mark.at, mark.waited) for mark in step.retries if mark.at is not None and mark.waited > 0]
    yield from (each[1:] for each in _merge((("wait", *each) for each in known), length))


def _marks(retries: Iterable[RetryMark], length: float) -> Iterator[tuple[float, str]]:
    """Positions and labels of marks; those that would cover each other are left out."""
    last = -math.inf
    for mark in retries:
        position = _percent(mark.at or 0.0, length)
        if mark.at is not None and position - last >= _MARK_DISTANCE:
            last = position
            yield position, f"Attempt {mark.attempt} failed: {mark.reason[:_MAX_LABEL]}"


def _merged_states(steps: Sequence[TimelineStep], length: float) -> Iterator[tuple[str, float, float]]:
    return _merge(((bar_class(step), step.start, step.seconds) for step in steps), length)


def _merge(spans: Iterable[tuple[str, float, float]], length: float) -> Iterator[tuple[str, float, float]]:
    """Join a tiny span with the one before it if it touches it: thousands of them stay a small drawing."""
    tiny = length * _MERGED_WIDTH / 100
    current: tuple[str, float, float] | None = None
    for kind, start, seconds in spans:
        if current is None:
            current = (kind, start, seconds)
            continue
        end = current[1] + current[2]
        if kind == current[0] and seconds < tiny and start - end < tiny:
            current = (kind, current[1], max(end, start + seconds) - current[1])
        else:
            yield current
            current = (kind, start, seconds)
    if current is not None:
        yield current
