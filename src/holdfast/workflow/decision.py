"""The decision table: from record, fingerprint and probe result to skip or run, with the reason.

Pure functions. Runs and previews both decide here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import msgspec

if TYPE_CHECKING:
    from collections.abc import Sequence

    from holdfast.workflow.step import ProbeResult
    from holdfast.workflow.store import StepRecord


class DecisionInput(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Everything that a decision depends on."""

    record: StepRecord | None = None
    # The fingerprint equals the recorded one.
    fingerprint_matches: bool = True
    changed_inputs: Sequence[str] = ()
    changed_reads: Sequence[str] = ()
    # None if the step has no probe.
    probe_result: ProbeResult | None = None
    always: bool = False
    at_least_once: bool = False


class StepDecision(msgspec.Struct, frozen=True):
    """Skip a step, adopt it (skip it and record it as done), run it, or wait because its state is unknown."""

    action: Literal["skip", "adopt", "run", "wait"]
    reason: str


NOT_DONE_YET = StepDecision("run", "not done yet")


def decide(facts: DecisionInput) -> StepDecision:
    """Decide what to do with a step."""
    probe_result, record = facts.probe_result, facts.record
    if facts.always:
        return StepDecision("run", "runs every time (read-only)")
    # Before the fingerprints are compared: running a step whose state is unknown could repeat its effect.
    if probe_result is not None and probe_result.state == "unknown":
        return StepDecision("wait", _join_reason("state unknown", probe_result.reason))
    change = _change_reason(facts, record) if record is not None else ""
    if change:
        return StepDecision("run", change)
    return _decide_without_probe(facts) if probe_result is None else _decide_with_probe(record, probe_result)


def _decide_with_probe(record: StepRecord | None, probe_result: ProbeResult) -> StepDecision:
    if probe_result.state != "done":
        return StepDecision("run", _run_reason(record, probe_result))
    if record is None:
        return StepDecision("adopt", probe_result.reason or "already done")
    if record.state == "done":
        return StepDecision("skip", probe_result.reason or f"done in run {record.run}, probe confirms")
    return StepDecision("adopt", _join_reason("done before the earlier run ended", probe_result.reason))


def _change_reason(facts: DecisionInput, record: StepRecord) -> str:
    """Return what changed since the record was written; empty if nothing did."""
    if facts.fingerprint_matches and record.stale and record.state != "done":
        return f"{_earlier_attempt(record)}, after a change"
    if not facts.fingerprint_matches:
        names = ", ".join(facts.changed_inputs)
        return f"changed: {names}" if names else "a required step changed"
    if facts.changed_reads and record.state == "done":
        return f"the result of {', '.join(facts.changed_reads)} changed"
    return ""


def _decide_without_probe(facts: DecisionInput) -> StepDecision:
    record = facts.record
    if record is None:
        return NOT_DONE_YET
    if record.state == "done":
        return StepDecision("skip", f"done in run {record.run}")
    warning = "; its effect may happen twice (at least once)" if facts.at_least_once else ""
    return StepDecision("run", _earlier_attempt(record) + warning)


def _run_reason(record: StepRecord | None, probe_result: ProbeResult) -> str:
    if record is None:
        return probe_result.reason or ("partly done" if probe_result.state == "partial" else "not done yet")
    prefix = "drift" if record.state == "done" else _earlier_attempt(record)
    return _join_reason(prefix, probe_result.reason or probe_result.state)


def _earlier_attempt(record: StepRecord) -> str:
    return "failed in the last run" if record.state == "failed" else "interrupted in an earlier run"


def _join_reason(text: str, reason: str) -> str:
    return f"{text}: {reason}" if reason else text
