"""Builds the model of a timeline from the record of a run."""

from __future__ import annotations

import heapq
from textwrap import dedent
from typing import TYPE_CHECKING

from msgspec.structs import replace

from holdfast.timeline.model import (
    Comparison,
    RetryMark,
    RunSummary,
    SkippedSteps,
    StepChange,
    Timeline,
    TimelineStep,
    ValueChange,
)
from holdfast.workflow.store import describe_damage

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from holdfast.workflow import RunRecord, StepLog

# Clocks of records are rounded: a step may seem to start this much before the end of the step that it needs.
_TOLERANCE = 0.002
# Seconds: with this limit, sums of the impossible times of a damaged record stay finite.
_MAX_SECONDS = 1e12
# Seconds: a run begins before its duration is measured.
_CLOCK_TOLERANCE = 1.0
# Seconds: smaller differences between two runs say nothing.
_MIN_CHANGE = 0.001


def build_timeline(run: RunRecord, *, earlier: RunRecord | None = None, now: float | None = None) -> Timeline:
    """Return the timeline of a run.

    Args:
        run: the record of the run.
        earlier: the run to compare it with.
        now: the end of the axis of a run that is still running, in seconds since the epoch.
    """
    spans = _measured_steps(run, now)
    length = max([_clamp(run.seconds), *(step.end for step in spans)], default=0.0)
    if run.outcome == "running" and now is not None:
        length = max(length, _clamp(now - run.started))
    length = max(length, 0.001)
    # The end of a step that was in flight was not recorded.
    spans = [
        replace(step, seconds=max(0.0, length - step.start)) if step.state == "in flight" else step
        for step in spans
    ]
    spans = _with_lanes(sorted(spans, key=lambda step: (step.start, step.end)))
    critical = _critical_path(spans)
    before = {} if earlier is None else {log.step: log.seconds for log in earlier.steps}
    steps = tuple(
        replace(step, is_critical=step.name in critical, earlier=before.get(step.name)) for step in spans
    )
    error, log = _split_log(run.error)
    return Timeline(
        run=summarize_run(run),
        length=length,
        steps=steps,
        skipped=tuple(
            SkippedSteps(reason=reason, steps=tuple(names)) for reason, names in run.skipped.items()
        ),
        lanes=max((step.lane + 1 for step in steps), default=0),
        concurrency=_max_concurrency(steps),
        retries=sum(len(step.retries) for step in steps),
        waited=sum(mark.waited for step in steps for mark in step.retries),
        critical=sum(step.seconds for step in steps if step.is_critical) if critical else None,
        failed_step=run.step,
        error=error,
        code=run.code,
        hint=run.hint,
        log=log,
        damage=tuple(describe_damage(event) for event in run.damage),
        comparison=None if earlier is None else _compare_runs(run, earlier),
    )


def summarize_run(run: RunRecord) -> RunSummary:
    """Return what a run was and how it ended."""
    return RunSummary(
        id=run.id,
        workflow=run.workflow,
        command=run.command,
        subject=run.subject,
        outcome=run.outcome,
        started=run.started,
        seconds=run.seconds,
        version=run.tool,
        platform=run.platform,
        process=f"{run.pid} on {run.host}" if run.pid else "",
        parameters=dict(run.parameters),
    )


def _measured_steps(run: RunRecord, now: float | None) -> list[TimelineStep]:
    """The steps that ran, and the skipped ones that were probed."""
    reasons = {name: reason for reason, names in run.skipped.items() for name in names}
    length = run.seconds or (now or max((log.at for log in run.steps), default=0.0)) - run.started
    steps = [_step_from_log(log, run.started, length) for log in run.steps]
    for name, probe in run.probes.items():
        steps.append(
            TimelineStep(
                name=name,
                title=name,
                state="skipped",
                start=_start_offset(probe.at, run.started, length),
                seconds=_clamp(probe.seconds),
                lane=0,
                reason=reasons.get(name, ""),
                needs=probe.needs,
            )
        )
    ends = {step.name: step.end for step in steps}
    return [replace(step, queued=_queued_seconds(step, ends)) for step in steps]


def _start_offset(at: float, started: float, length: float) -> float:
    """Return the start of a step, within the run even if the clock of the machine was set meanwhile."""
    offset = _clamp(at - started)
    return offset if offset <= length + _CLOCK_TOLERANCE else _clamp(length)


def _clamp(seconds: float) -> float:
    return min(max(0.0, seconds), _MAX_SECONDS)


def _step_from_log(log: StepLog, started: float, length: float) -> TimelineStep:
    start = _start_offset(log.at, started, length)
    error, lines = _split_log(log.error)
    return TimelineStep(
        name=log.step,
        title=log.title or log.step,
        state=log.outcome,
        start=start,
        seconds=_clamp(log.seconds),
        lane=0,
        attempts=log.tries,
        reason=log.reason,
        note=log.note,
        needs=log.needs,
        retries=_retry_marks(log, start, started),
        at_least_once=log.at_least_once,
        begun_before=log.begun_before,
        error=error,
        code=log.code,
        log=lines,
        progress=log.progress,
    )


def _retry_marks(log: StepLog, start: float, started: float) -> tuple[RetryMark, ...]:
    if len(log.retry_times) != len(log.retries):  # a record of an older version
        return tuple(RetryMark(attempt=n, reason=reason) for n, reason in enumerate(log.retries, 1))
    end = start + _clamp(log.seconds)
    times = [min(max(start, at - started), end) for at, _ in log.retry_times]
    # Calls inside a step retry too, so waits may overlap: each ends at the next failure at the latest.
    limits = [*times, end][1:]
    return tuple(
        RetryMark(attempt=n, reason=reason, at=at, delay=delay, waited=max(0.0, min(delay, limit - at)))
        for n, (reason, at, (_, delay), limit) in enumerate(
            zip(log.retries, times, log.retry_times, limits, strict=True), 1
        )
    )


def _split_log(error: str) -> tuple[str, tuple[str, ...]]:
    """Split an error into its message and the lines of a log that it quotes."""
    message, *lines = error.strip().splitlines() or [""]
    return message, tuple(line for line in dedent("\n".join(lines)).splitlines() if line.strip())


def _queued_seconds(step: TimelineStep, ends: Mapping[str, float]) -> float:
    known = [ends[need] for need in step.needs if need in ends]
    queued = step.start - max(known) if known else 0.0
    return queued if queued > _TOLERANCE else 0.0


def _with_lanes(steps: Sequence[TimelineStep]) -> list[TimelineStep]:
    """Give each step the lowest lane that is free at its start; steps are in the order of their start."""
    free: list[int] = []
    busy: list[tuple[float, int]] = []
    placed = []
    for step in steps:
        while busy and busy[0][0] <= step.start + _TOLERANCE:
            heapq.heappush(free, heapq.heappop(busy)[1])
        lane = heapq.heappop(free) if free else len(busy)
        heapq.heappush(busy, (step.end, lane))
        placed.append(replace(step, lane=lane))
    return placed


def _max_concurrency(steps: Iterable[TimelineStep]) -> int:
    changes = [(step.start, 1) for step in steps]
    changes += [(max(step.start, step.end - _TOLERANCE), -1) for step in steps if step.seconds]
    running = highest = 0
    for _, change in sorted(changes, key=lambda each: (each[0], -each[1])):
        running += change
        highest = max(highest, running)
    return highest


def _critical_path(steps: Sequence[TimelineStep]) -> set[str]:
    """Follow, from the step that ended last, the needs that ended last."""
    by_name = {step.name: step for step in steps}
    if not any(step.needs for step in steps):
        return set()
    last = max(steps, key=lambda step: step.end)
    path: set[str] = set()
    while last.name not in path:
        path.add(last.name)
        needs = [by_name[need] for need in last.needs if need in by_name]
        if needs:
            last = max(needs, key=lambda step: step.end)
    return path


def _compare_runs(run: RunRecord, earlier: RunRecord) -> Comparison:
    after, before = ({log.step: log.seconds for log in each.steps} for each in (run, earlier))
    changes = [
        StepChange(step=name, before=before.get(name), after=after.get(name)) for name in {**before, **after}
    ]
    changes = [
        change
        for change in changes
        if None in (change.before, change.after)
        or abs((change.after or 0.0) - (change.before or 0.0)) >= _MIN_CHANGE
    ]
    # Steps that ran in both runs first: only their durations can be compared.
    changes.sort(
        key=lambda change: (
            change.before is None or change.after is None,
            -abs((change.after or 0.0) - (change.before or 0.0)),
        )
    )
    return Comparison(
        run=summarize_run(earlier),
        seconds=run.seconds - earlier.seconds,
        steps=tuple(changes),
        values=tuple(_changed_values(earlier, run)),
    )


def _changed_values(earlier: RunRecord, run: RunRecord) -> Iterable[ValueChange]:
    before, after = (
        {"version": each.tool, "platform": each.platform, **each.parameters} for each in (earlier, run)
    )
    for name in {**before, **after}:
        if before.get(name) != after.get(name):
            yield ValueChange(name=name, before=before.get(name), after=after.get(name))
