"""Inspect steps without effects, and decide whether to skip or run them. Runs and previews share it.

A fingerprint is a keyed digest of a step's inputs and of the fingerprints of its needs, so a change reaches
all dependants and nothing else. The code of a step is not part of it: after an edit, a half-done run can
still be resumed, and `version` forces the step to run again.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from holdfast.errors import StepStateUnknownError, WorkflowError
from holdfast.workflow.secrets import Secret
from holdfast.workflow.step import (
    ProbeResult,
    ResultNotAvailableError,
    RunContext,
    Step,
    StepContext,
    has_hook,
    required_steps,
)
from holdfast.workflow.store import NULL_RESULT, StepLog, StepRecord, encode_result

if TYPE_CHECKING:
    from collections.abc import Sequence

    from holdfast.retry import Policy

_DIGEST_SIZE = 12
_SHORT_DIGEST_SIZE = 6
_ENCODE_ERRORS = (TypeError, ValueError, RecursionError)


class StepTask(msgspec.Struct, gc=False):
    """A step with its inputs and record, ready to be skipped or run."""

    step: Step
    context: StepContext
    fingerprint: str
    inputs: Mapping[str, Any]
    record: StepRecord | None
    # The probe may see the effect of other inputs.
    stale: bool = False
    # The intent is on disk.
    intent_recorded: bool = False
    # An attempt failed, but the probe found its effect.
    adopted: bool = False


class StepInspector:
    """Finds out everything about the steps of one run that needs no effect.

    Digests use the key of the store. A secret is represented by its reference and a digest.
    """

    def __init__(self, run_context: RunContext, records: dict[str, StepRecord], key: bytes) -> None:
        self.run_context = run_context
        self.records = records
        self.fingerprints: dict[str, str] = {}
        # Copied for each digest: setting up a key costs more than hashing a small body.
        self._hasher = blake2b(digest_size=_DIGEST_SIZE, key=key[:64])
        self._short_hasher = blake2b(digest_size=_SHORT_DIGEST_SIZE, key=key[:64])
        self._encode = msgspec.json.Encoder(order="deterministic", enc_hook=self._encode_secret).encode

    def compute_fingerprint(self, step: Step, inputs: Mapping[str, Any], needs: Sequence[str]) -> str:
        """Return the fingerprint of a step, given the fingerprints of its needs."""
        try:
            body = self._encode((step.name, step.version, inputs, needs))
        except _ENCODE_ERRORS as error:
            raise self._encoding_error(step, inputs, error) from error
        digest = self._hasher.copy()
        digest.update(body)
        return digest.hexdigest()

    def _short_digest(self, body: bytes) -> str:
        digest = self._short_hasher.copy()
        digest.update(body)
        return digest.hexdigest()

    def _encode_secret(self, value: object) -> object:
        if not isinstance(value, Secret):
            raise TypeError(f"{type(value).__name__} is neither JSON nor a Secret")
        # Registered before probe and `run`, so that the value is masked in all events and errors of the step.
        self.run_context.redactor.add(value)
        return {"secret": value.ref, "digest": self._short_digest(value.reveal())}

    def _encoding_error(self, step: Step, inputs: Mapping[str, Any], error: Exception) -> WorkflowError:
        for name, value in inputs.items():
            try:
                self._encode(value)
            except _ENCODE_ERRORS:
                return WorkflowError(f"input {name!r} of step {step.name!r} cannot be fingerprinted: {error}")
        return WorkflowError(f"inputs of step {step.name!r} cannot be fingerprinted: {error}")

    def prepare(self, name: str) -> StepTask:
        """Read and fingerprint the inputs of a step; its needs must have been prepared."""
        step = self.run_context.graph.steps[name]
        context = StepContext(self.run_context, step)
        inputs = step.inputs(context)
        if inputs or type(inputs) is not dict:
            _check_inputs(step, inputs)
        try:
            needs = [self.fingerprints[need] for need in self.run_context.graph.needs[name]]
        except KeyError as missing:
            raise ResultNotAvailableError(*missing.args) from None
        fingerprint = self.fingerprints[name] = self.compute_fingerprint(step, inputs, needs)
        record = self.records.get(name)
        if record is None:
            return StepTask(step, context, fingerprint, inputs, record)
        context.in_flight = record.state != "done"
        context.previous_raw = record.result
        # Stays set after failed runs: until the step has run, its probe may see the effect of other inputs.
        stale = record.stale or record.fingerprint != fingerprint
        return StepTask(step, context, fingerprint, inputs, record, stale)

    def probe(self, task: StepTask) -> ProbeResult | None:
        """Probe a step once; None if it has no probe."""
        if not has_hook(task.step, "probe"):
            return None
        probe_result = task.step.probe(task.context)
        if not isinstance(probe_result, ProbeResult):
            raise WorkflowError(
                f"the probe of step {task.step.name!r} returned {probe_result!r}",
                hint="Return done(...), absent(...), partial(...) or unknown(...).",
            )
        task.context.probe_result = probe_result
        return probe_result

    def probe_with_retries(self, task: StepTask, policy: Policy | None) -> ProbeResult | None:
        """Probe a step, and again by the policy (30 seconds by default) while its state is unknown.

        Raises:
            StepStateUnknownError: the state stayed unknown.
        """
        from holdfast.retry import Policy, exponential

        def probe() -> ProbeResult | None:
            probe_result = self.probe(task)
            if probe_result is not None and probe_result.state == "unknown":
                raise StepStateUnknownError(
                    f"the state of step {task.step.name!r} is unknown: {probe_result.reason or 'no response'}"
                )
            return probe_result

        try:
            return probe()
        except Exception as error:
            policy = policy or Policy(attempts=None, deadline=30.0, backoff=exponential(0.2, cap=5.0))
            if not policy.is_retryable(error):
                raise
            return task.context.retry(policy).call(probe)

    def decide(self, task: StepTask, probe_result: ProbeResult | None) -> StepDecision:
        """Decide whether to skip or run a step."""
        step, record = task.step, task.record
        if record is None and probe_result is None and step.repeat != "always":
            return NOT_DONE_YET
        changed: list[str] = []
        matches = record is not None and record.fingerprint == task.fingerprint
        if record is not None and not matches:
            before, after = record.inputs or {}, self.input_digests(task) or {}
            changed = sorted(name for name in {*before, *after} if before.get(name) != after.get(name))
        return decide(
            DecisionInput(
                record=record,
                fingerprint_matches=matches,
                changed_inputs=changed,
                changed_reads=self.changed_reads(record),
                probe_result=probe_result,
                always=step.repeat == "always",
                at_least_once=step.repeat == "at-least-once",
            )
        )

    def input_digests(self, task: StepTask) -> dict[str, str] | None:
        """Return a short digest of each input of a task; None if it has none."""
        if not task.inputs:
            return None
        return {name: self._short_digest(self._encode(value)) for name, value in task.inputs.items()}

    def changed_reads(self, record: StepRecord | None) -> list[str]:
        """Return the steps whose result differs from what was read for the record."""
        if record is None or not record.reads:
            return []
        return [name for name, digest in record.reads.items() if self._result_digest(name) != digest]

    def _result_digest(self, name: str) -> str | None:
        raw = self.run_context.results.get(name)
        return None if raw is None else self._short_digest(bytes(raw))

    def known_result(self, task: StepTask, *, adopted: bool) -> msgspec.Raw | None:
        """Return the result of a step that is skipped; None if it is unknown."""
        probe_result, record = task.context.probe_result, task.record
        if probe_result is not None and probe_result.result is not None:
            return encode_result(task.step.name, probe_result.result)
        if adopted or record is None or (record.adopted and record.result == NULL_RESULT):
            return None
        return record.result

    def step_record(self, task: StepTask, state: Any, seconds: float = 0.0, **fields: Any) -> StepRecord:
        """Return the checkpoint of a step in this run; `fields` are further fields of the record."""
        digests = {name: self._result_digest(name) for name in sorted(task.context.reads)}
        return StepRecord(
            state=state,
            run=self.run_context.run_id,
            fingerprint=task.fingerprint,
            inputs=self.input_digests(task),
            reads={name: digest for name, digest in digests.items() if digest is not None} or None,
            at=time.time(),
            **_attempt_fields(task, seconds),
            **fields,
        )

    def step_log(self, task: StepTask, outcome: Any, seconds: float, **fields: Any) -> StepLog:
        """Return the entry of a step in the history of this run; `fields` are further fields of it."""
        started_at, step = time.time() - seconds, task.step
        return StepLog(
            step=step.name,
            outcome=outcome,
            at=started_at,
            title="" if step.title == step.name else step.title,
            needs=required_steps(step),
            **_attempt_fields(task, seconds),
            **fields,
        )


def _attempt_fields(task: StepTask, seconds: float) -> dict[str, Any]:
    record = task.record
    return {
        "seconds": seconds,
        "tries": task.context.attempt,
        "retries": tuple(task.context.retries),
        "retry_times": tuple(task.context.retry_times),
        "at_least_once": task.step.repeat == "at-least-once",
        # The run that wrote the record started the step, and died or failed in it.
        "begun_before": record is not None
        and (record.state == "intent" or (record.state == "failed" and record.tries > 0)),
    }


def _check_inputs(step: Step, inputs: object) -> None:
    if not isinstance(inputs, Mapping):
        raise WorkflowError(
            f"inputs of step {step.name!r} must be a mapping, not {type(inputs).__name__}",
            hint='Give each input a name: {"title": title}.',
        )
    for name in inputs:
        if not isinstance(name, str):
            raise WorkflowError(f"names of inputs of step {step.name!r} must be strings, not {name!r}")


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


# Pure functions from here on: record, fingerprint and probe result to skip or run, with the reason.


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
