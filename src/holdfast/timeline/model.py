"""The model of a timeline. Times are seconds since the start of the run, unless a field says otherwise."""

from __future__ import annotations

from typing import Literal

import msgspec

StepState = Literal["finished", "failed", "in flight", "skipped"]


class RetryMark(msgspec.Struct, frozen=True, kw_only=True):
    """One failed attempt after which the step tried again; the record of an older run has no times."""

    attempt: int
    reason: str
    at: float | None = None
    delay: float | None = None
    """The planned delay."""
    waited: float = 0.0
    """How long the step waited; less than `delay` if the step ended meanwhile."""


class TimelineStep(msgspec.Struct, frozen=True, kw_only=True):
    """One step that ran, or that was skipped after its probe."""

    name: str
    title: str
    state: StepState
    start: float
    seconds: float
    lane: int
    """Steps with the same lane did not run at the same time."""
    attempts: int = 0
    reason: str = ""
    note: str = ""
    needs: tuple[str, ...] = ()
    queued: float = 0.0
    """Seconds between the end of the steps that it needs and its start."""
    is_critical: bool = False
    """Whether the step is on the longest chain of dependent steps, which decides when the run ends."""
    retries: tuple[RetryMark, ...] = ()
    at_least_once: bool = False
    begun_before: bool = False
    error: str = ""
    code: str = ""
    log: tuple[str, ...] = ()
    """Lines of logs that the error quotes."""
    progress: tuple[str, ...] = ()
    """The last progress messages of a failed step."""
    earlier: float | None = None
    """Duration of the step in the run that this one is compared with."""

    @property
    def end(self) -> float:
        return self.start + self.seconds


class SkippedSteps(msgspec.Struct, frozen=True, kw_only=True):
    """The steps that were skipped for one reason."""

    reason: str
    steps: tuple[str, ...]


class RunSummary(msgspec.Struct, frozen=True, kw_only=True):
    """What a run was and how it ended; `started` is in seconds since the epoch."""

    id: str
    workflow: str
    command: str
    subject: str
    outcome: str
    started: float
    seconds: float
    version: str = ""
    platform: str = ""
    process: str = ""
    parameters: dict[str, str] = {}


class StepChange(msgspec.Struct, frozen=True, kw_only=True):
    """The durations of a step in both runs; None in a run in which it did not run."""

    step: str
    before: float | None
    after: float | None


class ValueChange(msgspec.Struct, frozen=True, kw_only=True):
    """A version or parameter that differs; None where it is not set."""

    name: str
    before: str | None
    after: str | None


class Comparison(msgspec.Struct, frozen=True, kw_only=True):
    """The run compared with an earlier one."""

    run: RunSummary
    seconds: float
    """How much longer this run took; negative if it was faster."""
    steps: tuple[StepChange, ...]
    """The steps whose durations differ, the largest difference first."""
    values: tuple[ValueChange, ...]


class Timeline(msgspec.Struct, frozen=True, kw_only=True):
    """A run as a timeline."""

    run: RunSummary
    length: float
    """The last time on the axis."""
    steps: tuple[TimelineStep, ...]
    """In the order of their start."""
    skipped: tuple[SkippedSteps, ...]
    lanes: int
    concurrency: int
    """The largest number of steps that ran at the same time."""
    retries: int
    waited: float
    """Seconds that steps spent between attempts."""
    critical: float | None
    """Seconds of the critical path; None if the record has no dependencies."""
    failed_step: str = ""
    error: str = ""
    code: str = ""
    hint: str = ""
    log: tuple[str, ...] = ()
    damage: tuple[str, ...] = ()
    comparison: Comparison | None = None
