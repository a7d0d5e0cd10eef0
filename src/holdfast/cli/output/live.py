"""The live display on a terminal: one line for each running step, and for each retry that it waits for."""

from __future__ import annotations

import math
import time
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import click
from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from holdfast.cli.output.plain import ProgressRenderer, event_line, format_retry
from holdfast.cli.output.text import defer_interrupts, escape_control_characters, escape_except_styles
from holdfast.events import (
    Event,
    RetryScheduled,
    RunFailed,
    RunFinished,
    RunStarted,
    StepFailed,
    StepFinished,
    StepProgress,
    StepSkipped,
    StepStarted,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rich.console import RenderableType

_REFRESHES_PER_SECOND = 10
_SPINNER = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"
_MINUTE, _HOUR = 60, 3600
# Texts are padded to this width, so that bars and times do not move with every message.
_TEXT_COLUMNS = 60
_BAR_COLUMNS = 20
# A narrower terminal shows the percentage without a bar.
_MIN_COLUMNS_WITH_BAR = 70
_MIN_ESTIMATE_SECONDS = 2.0
# The terminal prints ^C behind the last line. If that wrapped the line, the display could not be erased.
_FREE_COLUMNS = 3


@dataclass
class RunningStep:
    """A running step with its last progress; times are those of the monotonic clock."""

    title: str
    started: float
    message: str = ""
    fraction: float | None = None
    # Time and fraction of the first report: the remaining time is estimated from there.
    first: tuple[float, float] | None = field(default=None, repr=False)

    def update(self, event: StepProgress, now: float) -> None:
        """Take over the progress of an event."""
        self.message, previous, self.fraction = event.message, self.fraction, event.fraction
        if event.fraction is None:
            self.first = None
        elif self.first is None or event.fraction < (previous or 0.0):  # the next file or image
            self.first = (now, event.fraction)

    def seconds_left(self, now: float) -> float | None:
        """Estimate the remaining time; None if it is not known yet."""
        if self.fraction is None or self.first is None:
            return None
        started, fraction = self.first
        elapsed, done = now - started, self.fraction - fraction
        if elapsed < _MIN_ESTIMATE_SECONDS or done <= 0:
            return None
        return elapsed * (1 - self.fraction) / done


class LiveRenderer(ProgressRenderer):
    """Prints finished steps as permanent lines above a live display of the running ones.

    The display exists only while a step runs: it must not erase a prompt, or the output of a program.
    """

    def __init__(self) -> None:
        self._console = Console(stderr=True)
        self._live: Live | None = None
        self._is_paused = False
        self._steps: dict[str, RunningStep] = {}
        # The last scheduled retry of each operation, with the time at which it starts.
        self._retries: dict[str, tuple[float, RetryScheduled]] = {}

    def __exit__(self, *_exc: object) -> None:
        with defer_interrupts():
            self._stop_display()

    @contextmanager
    def pause(self) -> Iterator[None]:
        # The display redirects stderr: rich takes the `[y/N]` of a question for markup, and redraws the line.
        with defer_interrupts():
            self._is_paused = True
            self._update_display()
        try:
            yield
        finally:
            with defer_interrupts():
                self._is_paused = False
                self._update_display()

    def __call__(self, event: Event) -> None:
        with defer_interrupts():
            self._show(event)

    def live_lines(self, now: float, columns: int) -> list[Text]:
        """Return the lines of the display at a time, each at most `columns` wide."""
        lines = [_step_line(step, now, columns) for step in list(self._steps.values())]
        for due, event in list(self._retries.values()):
            if due > now:
                lines.append(_retry_line(event, due - now, columns))
        return lines

    def _show(self, event: Event) -> None:
        self._track(event, time.monotonic())
        is_counted_down = isinstance(event, RetryScheduled) and event.operation in self._retries
        line = "" if is_counted_down else event_line(event)
        if line:
            # `from_ansi` keeps the colours of click and interprets no markup: messages can contain output of
            # other programs. With `soft_wrap` the terminal wraps long lines, so that paths can be copied.
            self._console.print(Text.from_ansi(escape_except_styles(line)), soft_wrap=True)
        self._update_display()
        if self._live is not None and not isinstance(event, StepProgress):
            self._live.refresh()  # progress can be frequent; the display refreshes itself

    def _track(self, event: Event, now: float) -> None:
        match event:
            case StepStarted():
                self._steps[event.step] = RunningStep(event.title, now)
            case StepProgress() if event.step in self._steps:
                self._steps[event.step].update(event, now)
                self._retries.pop(event.step, None)
            case StepFinished() | StepFailed() | StepSkipped():
                self._steps.pop(event.step, None)
                self._retries.pop(event.step, None)
            case RetryScheduled():
                self._retries.pop(event.operation, None)
                if event.delay:
                    self._retries[event.operation] = (now + event.delay, event)
            case RunStarted() | RunFailed() | RunFinished():
                # A step that was cancelled reports no end, and the next run may not reach it.
                self._steps.clear()
                self._retries.clear()
        if not self._steps:
            self._retries.clear()

    def _update_display(self) -> None:
        if self._is_paused or not self._steps:
            self._stop_display()
        elif self._live is None:
            self._live = Live(
                console=self._console,
                get_renderable=self._render,
                refresh_per_second=_REFRESHES_PER_SECOND,
                transient=True,
                redirect_stdout=False,
            )
            self._live.start(refresh=True)

    def _stop_display(self) -> None:
        if self._live is not None:
            self._live.stop()
            self._live = None

    def _render(self) -> RenderableType:
        lines = self.live_lines(time.monotonic(), self._console.width - _FREE_COLUMNS)
        return Group(*lines) if lines else ""


def _step_line(step: RunningStep, now: float, columns: int) -> Text:
    elapsed = now - step.started
    spinner = _SPINNER[int(elapsed * _REFRESHES_PER_SECOND) % len(_SPINNER)]
    tail = Text("  ").join([*_progress_parts(step, now, columns), Text(_format_clock(elapsed), "yellow")])
    room = max(0, columns - 4 - tail.cell_len)  # spinner, text and tail are separated by spaces
    text = _clean(step.title)
    if step.message:
        message = _clean(step.message)
        # The title gives way down to half of the line, then the message is cut.
        text.truncate(max(room - message.cell_len - 2, room // 2), overflow="ellipsis")
        text.append("  ").append(message.plain, "dim")
    text.truncate(room, overflow="ellipsis")
    text.pad_right(max(0, min(room, _TEXT_COLUMNS) - text.cell_len))
    line = Text.assemble((spinner, "green"), " ", text, "  ", tail, no_wrap=True, overflow="crop")
    line.truncate(columns)  # a terminal that is narrower than the tail
    return line


def _progress_parts(step: RunningStep, now: float, columns: int) -> list[Text]:
    """Bar, percentage and remaining time of a step, as far as they are known."""
    if step.fraction is None:
        return []
    parts = [Text(f"{step.fraction:4.0%}")]
    if columns >= _MIN_COLUMNS_WITH_BAR:
        filled = round(min(max(step.fraction, 0.0), 1.0) * _BAR_COLUMNS)
        bar = Text.assemble(("━" * filled, "green"), ("━" * (_BAR_COLUMNS - filled), "dim"))
        parts.insert(0, bar)
    left = step.seconds_left(now)
    if left is not None:
        parts.append(Text(f"{_format_clock(left)} left", "cyan"))
    return parts


def _retry_line(event: RetryScheduled, delay: float, columns: int) -> Text:
    reason = _clean(event.reason)
    frame = _clean(format_retry(event, delay, reason="")).cell_len + 4  # two spaces before and after
    reason.truncate(max(columns - frame, 1), overflow="ellipsis")
    line = Text(f"  {format_retry(event, delay, reason=reason.plain)}", "yellow", no_wrap=True)
    line.truncate(columns, overflow="ellipsis")
    return line


def _clean(text: str) -> Text:
    """A text on one line without escape sequences of other programs."""
    return Text(escape_control_characters(" ".join(click.unstyle(text).split())), no_wrap=True)


def _format_clock(seconds: float) -> str:
    whole = math.floor(seconds)
    hours, minutes = whole // _HOUR, whole // _MINUTE % _MINUTE
    return f"{hours}:{minutes:02}:{whole % _MINUTE:02}" if hours else f"{minutes}:{whole % _MINUTE:02}"
