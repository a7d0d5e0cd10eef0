"""The one table of the engine: from record, fingerprint and verdict to skip or run, with the reason.

Pure: asks nobody and changes nothing. The runner and the preview both decide here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import msgspec

if TYPE_CHECKING:
    from collections.abc import Sequence

    from holdfast.engine.record import Record
    from holdfast.engine.verdict import Verdict


class Facts(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """All that a decision may depend on."""

    record: Record | None = None
    same: bool = True
    """the fingerprint is the recorded one"""
    changed_inputs: Sequence[str] = ()
    changed_reads: Sequence[str] = ()
    verdict: Verdict | None = None
    """None: the step has no probe"""
    always: bool = False
    at_least_once: bool = False


class Decision(msgspec.Struct, frozen=True):
    """Skip a step, adopt it (skip, and record it as done), run it, or wait (nobody can tell now)."""

    action: Literal["skip", "adopt", "run", "wait"]
    reason: str


NOT_DONE_YET = Decision("run", "not done yet")
"""on a step without probe that nobody has begun"""


def decide(facts: Facts) -> Decision:
    """What to do with a step, and why."""
    verdict, record = facts.verdict, facts.record
    if facts.always:
        return Decision("run", "looks every time")
    if verdict is not None and verdict.state == "unknown":
        return Decision("wait", _because("cannot be told", verdict.reason))
    changed = _changed(facts, record) if record is not None else ""
    if changed:
        return Decision("run", changed)
    return _without_probe(facts) if verdict is None else _with_probe(record, verdict)


def _with_probe(record: Record | None, verdict: Verdict) -> Decision:
    if verdict.state != "done":
        return Decision("run", _why_run(record, verdict))
    if record is not None and record.state == "done":
        return Decision("skip", verdict.reason or f"done in run {record.run}, and still so")
    if record is not None:
        return Decision("adopt", _because("it was done when the earlier run ended", verdict.reason))
    return Decision("adopt", verdict.reason or "already there")


def _changed(facts: Facts, record: Record) -> str:
    """What differs from what the record was made for; empty if nothing does."""
    if facts.same and record.stale and record.state != "done":
        return f"{_earlier(record)}, after a change"
    if not facts.same:
        names = ", ".join(facts.changed_inputs)
        return f"changed: {names}" if names else "something that it needs has changed"
    if facts.changed_reads and record.state == "done":
        return f"the result of {', '.join(facts.changed_reads)} has changed"
    return ""


def _without_probe(facts: Facts) -> Decision:
    record = facts.record
    if record is None:
        return NOT_DONE_YET
    if record.state == "done":
        return Decision("skip", f"done in run {record.run}")
    again = "; it may happen a second time (at least once)" if facts.at_least_once else ""
    return Decision("run", _earlier(record) + again)


def _why_run(record: Record | None, verdict: Verdict) -> str:
    if record is None:
        return verdict.reason or ("half there" if verdict.state == "partial" else "not there")
    if record.state == "done":
        return _because("drift", verdict.reason or verdict.state)
    return _because(_earlier(record), verdict.reason or verdict.state)


def _earlier(record: Record) -> str:
    return "it failed last time" if record.state == "failed" else "a run ended in the middle of it"


def _because(what: str, reason: str) -> str:
    return f"{what}: {reason}" if reason else what
