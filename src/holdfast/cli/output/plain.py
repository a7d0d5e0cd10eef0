"""Results and tables on stdout, one line per finished step on stderr, as text or JSON.

`progress_renderer` chooses the renderer: a live display on a terminal, lines in a pipe, or JSON.
With `--quiet`, only what the user must know is printed.
"""

from __future__ import annotations

import math
import re
import sys
import time
from contextlib import contextmanager
from functools import cached_property
from typing import TYPE_CHECKING, Any

import click
import msgspec

from holdfast.cli.click_extensions import FAILED_RUN_KEY, is_json_requested, is_quiet_requested
from holdfast.cli.output.text import echo, supports_escapes
from holdfast.events import (
    Event,
    EventBus,
    RetryScheduled,
    RunFailed,
    RunFinished,
    RunStarted,
    StepFailed,
    StepFinished,
    StepProgress,
    StepSkipped,
    StepStarted,
    StoreDamaged,
    Subscriber,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from typing import Self

    from holdfast.gateway import GatewayPlan

# The version of the objects that `--json` prints (docs/reference/json-output.md). It changes when a field is
# removed or changes its meaning. New fields, objects and values do not change it.
JSON_SCHEMA_VERSION = 1
# Seconds between two progress lines of a running step, if stderr is not a terminal.
_HEARTBEAT_INTERVAL = 10.0
_MIN_SHOWN_SECONDS = 0.05
_PLAN_CHANGES_EXIT_CODE = 5
_C1_CONTROLS = re.compile("[\x7f-\x9f]")


def progress_renderer() -> ProgressRenderer:
    """Return the renderer for stderr: JSON, live display or plain lines."""
    renderer = JsonRenderer() if is_json_requested() else PlainRenderer()
    if is_quiet_requested():
        return QuietRenderer(renderer)
    if isinstance(renderer, PlainRenderer) and supports_escapes(sys.stderr):
        from holdfast.cli.output.live import LiveRenderer

        return LiveRenderer()
    return renderer


class ProgressRenderer:
    """Prints the events of a command; a context manager that restores the terminal."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exc: object) -> None:
        return None

    def __call__(self, event: Event) -> None:
        raise NotImplementedError

    @contextmanager
    def pause(self) -> Iterator[None]:
        """Leave the terminal to the block, which asks the user."""
        yield

    @cached_property
    def bus(self) -> EventBus:
        """The event bus of the command; it delivers the events of all threads one after another."""
        return EventBus(self, _failed_run_recorder())


def _failed_run_recorder() -> Subscriber:
    """Return a subscriber that remembers the failed run for the error of the command."""
    # Events may come from other threads, which have no context.
    context = click.get_current_context(silent=True)
    flags = {} if context is None else context.ensure_object(dict)

    def record(event: Event) -> None:
        if isinstance(event, RunFailed) and event.recorded:
            flags[FAILED_RUN_KEY] = event.run

    return record


class JsonRenderer(ProgressRenderer):
    """Prints every event as one JSON object."""

    def __call__(self, event: Event) -> None:
        print_json(event, err=True)


def print_json(value: Any, *, err: bool = False) -> None:
    """Print a value as one line of JSON on stdout, or on stderr."""
    text = msgspec.json.encode(value).decode()
    # JSON requires escapes for the characters below U+0020 only; terminals interpret these too.
    click.echo(_C1_CONTROLS.sub(lambda match: f"\\u{ord(match[0]):04x}", text), err=err)


def print_yaml(value: Any) -> None:
    """Print a value as a YAML document on stdout, with escapes for everything that is not ASCII."""
    import yaml

    click.echo(yaml.safe_dump(msgspec.to_builtins(value), sort_keys=False, width=math.inf), nl=False)


class PlainRenderer(ProgressRenderer):
    """Prints one line for each finished step, and a heartbeat line for steps that take long."""

    def __init__(self) -> None:
        self._last_output_at = time.monotonic()

    def __call__(self, event: Event) -> None:
        line = self._line_for(event)
        if line:
            self._last_output_at = time.monotonic()
            echo(line, err=True)

    def _line_for(self, event: Event) -> str:
        if isinstance(event, StepProgress):
            return self._heartbeat_line(event)
        if isinstance(event, StepStarted):
            self._last_output_at = time.monotonic()
        return event_line(event)

    def _heartbeat_line(self, event: StepProgress) -> str:
        if time.monotonic() - self._last_output_at < _HEARTBEAT_INTERVAL:
            return ""
        percent = "" if event.fraction is None else f" ({event.fraction:.0%})"
        return f"… {event.message}{percent}"


class QuietRenderer(ProgressRenderer):
    """Passes on only events that report a loss; the error of the command reports failures."""

    def __init__(self, renderer: ProgressRenderer) -> None:
        self._renderer = renderer

    def __call__(self, event: Event) -> None:
        if isinstance(event, StoreDamaged):
            self._renderer(event)


class _ChangesRenderer(ProgressRenderer):
    """Prints the steps that change something, and then one line for all steps."""

    def __init__(self, renderer: ProgressRenderer) -> None:
        self._renderer = renderer
        self._steps = 0

    def __enter__(self) -> Self:
        self._renderer.__enter__()
        return self

    def __exit__(self, *exc: object) -> None:
        self._renderer.__exit__(*exc)

    def __call__(self, event: Event) -> None:
        if isinstance(event, RunStarted):
            self._steps = len(event.steps)
        is_unchanged = isinstance(event, StepFinished) and not event.changed
        if is_unchanged or isinstance(event, StepSkipped):
            # Passed on without its line: a live display removes the step.
            event = msgspec.structs.replace(event, title="")
        self._renderer(event)
        if isinstance(event, RunFinished) and event.changed:
            note = f"{event.changed} changed something"
            title = f"{self._steps} steps"
            self._renderer(StepFinished(step="", title=title, seconds=event.seconds, note=note))


def steps_renderer(*, verbose: bool) -> ProgressRenderer:
    """Return the renderer of a command that runs steps; without `verbose`, it prints what changes."""
    renderer = progress_renderer()
    return renderer if verbose or is_json_requested() else _ChangesRenderer(renderer)


def event_line(event: Event) -> str:
    """Return the permanent line for an event, or an empty string; a step without a title has no line."""
    match event:
        case StepFinished() if event.title:
            note = f": {event.note}" if event.note else ""
            return f"{click.style('✓', fg='green')} {event.title}{note}{_format_seconds(event.seconds)}"
        case StepSkipped() if event.title:
            return f"{click.style('✓', fg='green')} {event.title}: skipped: {event.reason}"
        case StepFailed() if event.title:
            return f"{click.style('x', fg='red')} {event.title}{_format_seconds(event.seconds)}"
        case StoreDamaged():
            from holdfast.workflow.store import describe_damage

            return f"{click.style('!', fg='yellow')} {describe_damage(event)}"
        case RetryScheduled():
            return f"  … {format_retry(event, event.delay, reason=event.reason)}"
    return ""


def format_retry(event: RetryScheduled, delay: float, *, reason: str) -> str:
    """Describe a retry that starts after `delay` seconds: when, why, and which attempt it is."""
    limit = "" if event.attempts is None else f" of {event.attempts}"
    # Rounded up: a countdown does not show 0 s while the command still waits.
    when = f"retry in {math.ceil(delay)} s" if delay else "retry now"
    return f"{when}: {reason} (attempt {event.attempt + 1}{limit})"


def _format_seconds(seconds: float) -> str:
    return f" ({seconds:.1f} s)" if seconds >= _MIN_SHOWN_SECONDS else ""


def print_result(result: Any, lines: Sequence[str]) -> None:
    """Print a result on stdout: the object as JSON, or the lines."""
    if is_json_requested():
        print_json(result)
        return
    for line in lines:
        echo(line)


def print_plan(plan: GatewayPlan, *, verbose: bool = False) -> None:
    """Print a summary of a plan and its changes, or all steps; exit with 5 if there are changes.

    Args:
        plan: the plan.
        verbose: list each step with its action, not only those that change something.
    """
    lines = [_plan_summary(plan)]
    lines += [f"  {change.setting}: {change.current} -> {change.desired}" for change in plan.settings]
    changes = [step for step in plan if step.action == "run"]
    # Steps that cannot be checked now usually depend on these changes.
    shown = list(plan) if verbose else changes or [step for step in plan if step.unsure]
    for step in shown:
        action = f"{step.action:<7} " if verbose else ""
        lines.append(f"  {action}{step.title}: {step.reason}")
        lines += [f"    touches {data}" for data in step.touches]
    print_result(plan, lines)
    if plan.has_changes:
        click.get_current_context().exit(_PLAN_CHANGES_EXIT_CODE)


_PLAN_EFFECTS = {
    "none": "the gateway keeps its state",
    "starts": "the gateway starts",
    "restarts": "the gateway restarts",
}


def _plan_summary(plan: GatewayPlan) -> str:
    if not plan.has_changes:
        return f"Gateway {plan.gateway}: no changes"
    number = sum(step.action == "run" for step in plan)
    changes = "1 change" if number == 1 else f"{number} changes" if number else "perhaps changes"
    return f"Gateway {plan.gateway}: {changes}; {_PLAN_EFFECTS[plan.effect]}"


def format_table(rows: Sequence[Sequence[str]]) -> list[str]:
    """Align the columns of a table; the first row is the heading."""
    widths = [max(len(cell) for cell in column) for column in zip(*rows, strict=True)]
    return [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows
    ]
