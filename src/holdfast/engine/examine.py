"""Looks at a step: what it reads, what is recorded, what the world says. Changes nothing.

The runner and the preview both look through this. Not here: acting on it (`runner`), and the table
(`decide`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from holdfast.engine.context import Context, NotYetError, Session
from holdfast.engine.decide import NOT_DONE_YET, Decision, Facts, decide
from holdfast.engine.fingerprint import Fingerprinter, changes
from holdfast.engine.step import Step, has
from holdfast.engine.verdict import Verdict, unknown
from holdfast.errors import UnknownStateError, WorkflowError

if TYPE_CHECKING:
    from holdfast.engine.record import Record
    from holdfast.retry import Policy


class Task(msgspec.Struct, gc=False):
    """A step that has been looked at, on its way to being skipped or run."""

    step: Step
    context: Context
    fingerprint: str
    inputs: Mapping[str, Any]
    record: Record | None
    stale: bool = False
    """what the probe sees may come from other inputs"""
    intended: bool = False
    """its intent is on disk"""
    adopted: bool = False
    """an attempt failed, and the world says that it had its effect all the same"""


def default_patience() -> Policy:
    """How long an unknown state is asked again before the run gives up."""
    from holdfast.retry import Policy, exponential

    return Policy(attempts=None, deadline=30.0, backoff=exponential(0.2, cap=5.0))


class Examiner:
    """Everything that can be found out about the steps of one run without an effect."""

    def __init__(self, session: Session, records: dict[str, Record], key: bytes) -> None:
        self.session = session
        self.records = records
        self.digests = Fingerprinter(key, session.vault)
        self.fingerprints: dict[str, str] = {}

    def prepare(self, name: str) -> Task:
        """Ask a step for its inputs and fingerprint them; its needs must have been prepared before."""
        step = self.session.graph.steps[name]
        context = Context(self.session, step)
        inputs = step.inputs(context)
        if inputs or type(inputs) is not dict:
            _check_inputs(step, inputs)
        fingerprint = self.fingerprint(step, inputs)
        record = self.records.get(name)
        if record is None:
            return Task(step, context, fingerprint, inputs, record)
        context.in_flight = record.state != "done"
        context.previous_raw = record.result
        return Task(
            step, context, fingerprint, inputs, record, record.stale or record.fingerprint != fingerprint
        )

    def fingerprint(self, step: Step, inputs: Mapping[str, Any]) -> str:
        known = self.fingerprints
        try:
            needs = [known[need] for need in self.session.graph.needs[step.name]]
        except KeyError as missing:
            raise NotYetError(*missing.args) from None
        fingerprint = known[step.name] = self.digests.of(step, inputs, needs)
        return fingerprint

    def ask(self, task: Task) -> Verdict | None:
        """The verdict on a step, once; None where there is no probe and nothing else to ask."""
        step, record = task.step, task.record
        died_in_it = task.context.attempt > 0 or (record is not None and record.state != "done")
        if died_in_it and has(step, "resolve"):
            verdict = step.resolve(task.context)
        elif has(step, "probe"):
            verdict = step.probe(task.context)
        else:
            return None
        if not isinstance(verdict, Verdict):
            raise WorkflowError(
                f"the probe of step {step.name!r} returned {verdict!r}",
                hint="Return done(…), absent(…), partial(…) or unknown(…).",
            )
        task.context.verdict = verdict
        return verdict

    def ask_patiently(self, task: Task, patience: Policy) -> Verdict | None:
        """The verdict on a step; an unknown state is asked again until patience runs out."""
        from holdfast.retry import PASSING

        def ask() -> Verdict | None:
            verdict = self.ask(task)
            if verdict is not None and verdict.state == "unknown":
                raise UnknownStateError(
                    f"it cannot be told whether {task.step.name!r} is done: {verdict.reason or 'no answer'}"
                )
            return verdict

        try:
            return ask()
        except PASSING:
            return task.context.retry(patience).call(ask)

    def decide(self, task: Task, verdict: Verdict | None) -> Decision:
        """Skip or run, and why."""
        step, record = task.step, task.record
        if record is None and verdict is None and step.repeat != "always":
            return NOT_DONE_YET
        same = record is not None and record.fingerprint == task.fingerprint
        parts = () if same or record is None else changes(record.inputs or {}, self.marks(task) or {})
        return decide(
            Facts(
                record=record,
                same=same,
                changed_inputs=tuple(parts),
                changed_reads=self.changed_reads(record),
                verdict=verdict,
                always=step.repeat == "always",
                at_least_once=step.repeat == "at-least-once",
            )
        )

    def marks(self, task: Task) -> dict[str, str] | None:
        """A short digest of each input of a task; None if it has none."""
        return self.digests.parts(task.inputs) if task.inputs else None

    def changed_reads(self, record: Record | None) -> tuple[str, ...]:
        """Steps whose result is not the one that was read when the record was made."""
        if record is None or not record.reads:
            return ()
        now = self.session.results
        return tuple(
            name
            for name, mark in record.reads.items()
            if name not in now or self.digests.result(bytes(now[name])) != mark
        )

    def read_marks(self, context: Context) -> dict[str, str] | None:
        """What a step has read, with digests, for its record."""
        if not context.reads:
            return None
        now = self.session.results
        return {name: self.digests.result(bytes(now[name])) for name in sorted(context.reads) if name in now}


def _check_inputs(step: Step, inputs: object) -> None:
    if not isinstance(inputs, Mapping):
        raise WorkflowError(
            f"inputs of step {step.name!r} must be a mapping, not {type(inputs).__name__}",
            hint='Give each input a name: {"title": title}.',
        )
    for name in inputs:
        if not isinstance(name, str):
            raise WorkflowError(f"inputs of step {step.name!r} must have texts for names, not {name!r}")


def cannot_tell(error: Exception) -> Verdict:
    """A failed question, as a verdict, for a preview that does not wait."""
    return unknown(str(error).split("\n", 1)[0] or type(error).__name__)
