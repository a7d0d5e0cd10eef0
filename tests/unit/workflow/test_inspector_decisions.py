"""The decision table, row by row, as docs/decisions/0030-workflow.md has it."""

from __future__ import annotations

import pytest

from holdfast.workflow.inspector import DecisionInput, decide
from holdfast.workflow.step import absent, done, partial, unknown
from holdfast.workflow.store import StepRecord

DONE, FLIGHT, FAILED = (StepRecord(state=state, run="r1") for state in ("done", "intent", "failed"))
STALE = StepRecord(state="intent", run="r1", stale=True)


@pytest.mark.parametrize("record", [None, DONE, FLIGHT, FAILED, STALE])
@pytest.mark.parametrize("same", [True, False])
def test_unknown_probe_never_runs_step(record, same):
    assert (
        decide(DecisionInput(record=record, fingerprint_matches=same, probe_result=unknown("x"))).action
        == "wait"
    )


@pytest.mark.parametrize(
    ("record", "same", "verdict", "action", "words"),
    [
        (DONE, True, done("there"), "skip", "there"),
        (DONE, True, done(), "skip", "done in run r1, probe confirms"),
        (DONE, True, absent("gone"), "run", "drift: gone"),
        (DONE, True, partial(), "run", "drift: partial"),
        (DONE, False, done(), "run", "a required step changed"),
        (DONE, False, absent(), "run", "a required step changed"),
        (DONE, True, None, "skip", "done in run r1"),
        (FLIGHT, True, done("id 7"), "adopt", "done before the earlier run ended: id 7"),
        (FAILED, True, done(), "adopt", "done before the earlier run ended"),
        (FLIGHT, False, done(), "run", "a required step changed"),
        (FLIGHT, True, absent("no"), "run", "interrupted in an earlier run: no"),
        (FAILED, True, partial(), "run", "failed in the last run: partial"),
        (FLIGHT, True, None, "run", "interrupted in an earlier run"),
        (STALE, True, done(), "run", "interrupted in an earlier run, after a change"),
        (None, False, done("seen"), "adopt", "seen"),
        (None, False, done(), "adopt", "already done"),
        (None, False, absent("no"), "run", "no"),
        (None, False, absent(), "run", "not done yet"),
        (None, False, partial(), "run", "partly done"),
        (None, False, None, "run", "not done yet"),
    ],
)
def test_decision_table(record, same, verdict, action, words):
    decision = decide(DecisionInput(record=record, fingerprint_matches=same, probe_result=verdict))
    assert (decision.action, decision.reason) == (action, words)


def test_changed_inputs_are_named():
    assert (
        decide(DecisionInput(record=DONE, fingerprint_matches=False, changed_inputs=["image", "port"])).reason
        == "changed: image, port"
    )
    facts = DecisionInput(record=DONE, changed_reads=["a"], probe_result=done())
    assert decide(facts).reason == "the result of a changed"


def test_at_least_once_reason():
    assert "at least once" in decide(DecisionInput(record=FLIGHT, at_least_once=True)).reason
    assert "at least once" not in decide(DecisionInput(record=None, at_least_once=True)).reason


def test_read_only_step_always_runs():
    assert decide(DecisionInput(record=DONE, always=True)).action == "run"
