"""Inspection of steps without effects: inputs, fingerprints, records and probes. Runs and previews share it.

A fingerprint is a keyed digest of a step's inputs and of the fingerprints of its needs, so a change reaches
all dependants and nothing else. The code of a step is not part of it: after an edit, a half-done run can
still be resumed, and `version` forces the step to run again.
"""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import blake2b
from typing import TYPE_CHECKING, Any

import msgspec

from holdfast.errors import StepStateUnknownError, WorkflowError
from holdfast.workflow.decision import NOT_DONE_YET, DecisionInput, StepDecision, decide
from holdfast.workflow.run_context import ResultNotAvailableError, RunContext, StepContext
from holdfast.workflow.secrets import Secret, SecretRedactor
from holdfast.workflow.step import ProbeResult, Step, has_hook

if TYPE_CHECKING:
    from collections.abc import Sequence

    from holdfast.retry import Policy
    from holdfast.workflow.store import StepRecord

_DIGEST_SIZE = 12
_SHORT_DIGEST_SIZE = 6
_ENCODE_ERRORS = (TypeError, ValueError, RecursionError)


class Fingerprinter:
    """Computes digests with the key of one store; a secret is represented by its reference and a digest."""

    def __init__(self, key: bytes, redactor: SecretRedactor) -> None:
        # Copied for each digest: setting up a key costs more than hashing a small body.
        self._hasher = blake2b(digest_size=_DIGEST_SIZE, key=key[:64])
        self._short_hasher = blake2b(digest_size=_SHORT_DIGEST_SIZE, key=key[:64])
        self._redactor = redactor
        self._encode = msgspec.json.Encoder(order="deterministic", enc_hook=self._encode_secret).encode

    def fingerprint(self, step: Step, inputs: Mapping[str, Any], needs: Sequence[str]) -> str:
        """Return the fingerprint of a step, given the fingerprints of its needs."""
        try:
            body = self._encode((step.name, step.version, inputs, needs))
        except _ENCODE_ERRORS as error:
            raise self._encoding_error(step, inputs, error) from error
        digest = self._hasher.copy()
        digest.update(body)
        return digest.hexdigest()

    def input_digests(self, inputs: Mapping[str, Any]) -> dict[str, str]:
        """Return a short digest of each input, to name later which one changed."""
        return {name: self.short_digest(self._encode(value)) for name, value in inputs.items()}

    def short_digest(self, body: bytes) -> str:
        digest = self._short_hasher.copy()
        digest.update(body)
        return digest.hexdigest()

    def _encode_secret(self, value: object) -> object:
        if not isinstance(value, Secret):
            raise TypeError(f"{type(value).__name__} is neither JSON nor a Secret")
        self._redactor.add(value)
        return {"secret": value.ref, "digest": self.short_digest(value.reveal())}

    def _encoding_error(self, step: Step, inputs: Mapping[str, Any], error: Exception) -> WorkflowError:
        for name, value in inputs.items():
            try:
                self._encode(value)
            except _ENCODE_ERRORS:
                return WorkflowError(f"input {name!r} of step {step.name!r} cannot be fingerprinted: {error}")
        return WorkflowError(f"inputs of step {step.name!r} cannot be fingerprinted: {error}")


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
    """Finds out everything about the steps of one run that needs no effect."""

    def __init__(self, run_context: RunContext, records: dict[str, StepRecord], key: bytes) -> None:
        self.run_context = run_context
        self.records = records
        self.fingerprinter = Fingerprinter(key, run_context.redactor)
        self.fingerprints: dict[str, str] = {}

    def prepare(self, name: str) -> StepTask:
        """Read and fingerprint the inputs of a step; its needs must have been prepared."""
        step = self.run_context.graph.steps[name]
        context = StepContext(self.run_context, step)
        inputs = step.inputs(context)
        if inputs or type(inputs) is not dict:
            _check_inputs(step, inputs)
        fingerprint = self._fingerprint(step, inputs)
        record = self.records.get(name)
        if record is None:
            return StepTask(step, context, fingerprint, inputs, record)
        context.in_flight = record.state != "done"
        context.previous_raw = record.result
        stale = record.stale or record.fingerprint != fingerprint
        return StepTask(step, context, fingerprint, inputs, record, stale)

    def _fingerprint(self, step: Step, inputs: Mapping[str, Any]) -> str:
        try:
            needs = [self.fingerprints[need] for need in self.run_context.graph.needs[step.name]]
        except KeyError as missing:
            raise ResultNotAvailableError(*missing.args) from None
        self.fingerprints[step.name] = self.fingerprinter.fingerprint(step, inputs, needs)
        return self.fingerprints[step.name]

    def probe(self, task: StepTask) -> ProbeResult | None:
        """Probe a step once; None if it has no probe."""
        step, record = task.step, task.record
        was_interrupted = task.context.attempt > 0 or (record is not None and record.state != "done")
        if was_interrupted and has_hook(step, "resolve"):
            probe_result = step.resolve(task.context)
        elif has_hook(step, "probe"):
            probe_result = step.probe(task.context)
        else:
            return None
        if not isinstance(probe_result, ProbeResult):
            raise WorkflowError(
                f"the probe of step {step.name!r} returned {probe_result!r}",
                hint="Return done(...), absent(...), partial(...) or unknown(...).",
            )
        task.context.probe_result = probe_result
        return probe_result

    def probe_with_retries(self, task: StepTask, policy: Policy | None) -> ProbeResult | None:
        """Probe a step, and again by the policy (30 seconds by default) while its state is unknown.

        Raises:
            StepStateUnknownError: the state stayed unknown.
        """
        from holdfast.retry import TRANSIENT, Policy, exponential

        def probe() -> ProbeResult | None:
            probe_result = self.probe(task)
            if probe_result is not None and probe_result.state == "unknown":
                raise StepStateUnknownError(
                    f"the state of step {task.step.name!r} is unknown: {probe_result.reason or 'no response'}"
                )
            return probe_result

        try:
            return probe()
        except TRANSIENT:
            default = Policy(attempts=None, deadline=30.0, backoff=exponential(0.2, cap=5.0))
            return task.context.retry(policy or default).call(probe)

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
        return self.fingerprinter.input_digests(task.inputs) if task.inputs else None

    def changed_reads(self, record: StepRecord | None) -> list[str]:
        """Return the steps whose result differs from what was read for the record."""
        if record is None or not record.reads:
            return []
        return [name for name, digest in record.reads.items() if self._result_digest(name) != digest]

    def read_digests(self, context: StepContext) -> dict[str, str] | None:
        """Return digests of the results that a step has read; None if it read none."""
        digests = {name: self._result_digest(name) for name in sorted(context.reads)}
        return {name: digest for name, digest in digests.items() if digest is not None} if digests else None

    def _result_digest(self, name: str) -> str | None:
        raw = self.run_context.results.get(name)
        return None if raw is None else self.fingerprinter.short_digest(bytes(raw))


def _check_inputs(step: Step, inputs: object) -> None:
    if not isinstance(inputs, Mapping):
        raise WorkflowError(
            f"inputs of step {step.name!r} must be a mapping, not {type(inputs).__name__}",
            hint='Give each input a name: {"title": title}.',
        )
    for name in inputs:
        if not isinstance(name, str):
            raise WorkflowError(f"names of inputs of step {step.name!r} must be strings, not {name!r}")
