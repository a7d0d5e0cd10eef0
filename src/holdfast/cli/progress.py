"""Draws events as they come: a live line on a terminal, plain lines in a pipe, JSON lines on request.

All of it goes to stderr; stdout belongs to results. Not here: what the events mean.
"""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING

import click
import msgspec

from holdfast.events import (
    Bus,
    Event,
    RetryScheduled,
    StepFailed,
    StepFinished,
    StepProgress,
    StepSkipped,
    StepStarted,
    StoreDamaged,
)

if TYPE_CHECKING:
    from types import TracebackType
    from typing import Self

_QUIET_SECONDS = 10.0
"""In a pipe, a step under way says something at most this often."""


def progress(*, as_json: bool) -> Progress:
    """The right way to draw for who is looking."""
    if as_json:
        return JsonProgress()
    if sys.stderr.isatty():
        from holdfast.cli.live import LiveProgress

        return LiveProgress()
    return PlainProgress()


class Progress:
    """A subscriber for as long as a command runs: `with progress(...) as shown: Bus(shown)`."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        return None

    def __call__(self, event: Event) -> None:
        raise NotImplementedError

    @property
    def bus(self) -> Bus:
        """A bus with this as its only subscriber."""
        return Bus(self)


class JsonProgress(Progress):
    """Every event as one JSON object a line."""

    def __call__(self, event: Event) -> None:
        click.echo(msgspec.json.encode(event).decode(), err=True)


class PlainProgress(Progress):
    """One line for each step that ended, and a sign of life from those that take long."""

    def __init__(self) -> None:
        self._spoke = time.monotonic()

    def __call__(self, event: Event) -> None:
        line = self._line(event)
        if line:
            self._spoke = time.monotonic()
            click.echo(line, err=True)

    def _line(self, event: Event) -> str:
        if isinstance(event, StepProgress):
            return self._sign_of_life(event)
        if isinstance(event, StepStarted):
            self._spoke = time.monotonic()
        return line_for(event)

    def _sign_of_life(self, event: StepProgress) -> str:
        if time.monotonic() - self._spoke < _QUIET_SECONDS:
            return ""
        return f"… {event.message}{percent(event.fraction)}"


def line_for(event: Event) -> str:
    """The line that stays on the screen for an event; empty for those that leave none."""
    match event:
        case StepFinished():
            return f"{click.style('✓', fg='green')} {event.title}{_note(event.note)}{_seconds(event.seconds)}"
        case StepSkipped():
            return f"{click.style('✓', fg='green')} {event.title}: skipped: {event.reason}"
        case StepFailed():
            return f"{click.style('x', fg='red')} {event.title}{_seconds(event.seconds)}"
        case StoreDamaged():
            from holdfast.engine.damage import words

            return f"{click.style('!', fg='yellow')} {words(event)}"
        case RetryScheduled():
            return f"  … {event.reason}; try {event.attempt + 1} in {event.delay:.1f} s"
    return ""


def percent(fraction: float | None) -> str:
    """How far, where that is known."""
    return "" if fraction is None else f" ({fraction:.0%})"


def _note(note: str) -> str:
    return f": {note}" if note else ""


def _seconds(seconds: float) -> str:
    return f" ({seconds:.1f} s)" if seconds >= 0.05 else ""  # noqa: PLR2004 (below that, nobody waited)
