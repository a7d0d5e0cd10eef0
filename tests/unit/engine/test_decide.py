"""The decision table, row by row, as docs/decisions/0030-engine.md has it."""

from __future__ import annotations

import pytest

from holdfast.engine.decide import Facts, decide
from holdfast.engine.record import Record
from holdfast.engine.verdict import absent, done, partial, unknown

DONE, FLIGHT, FAILED = (Record(state=state, run="r1") for state in ("done", "intent", "failed"))
STALE = Record(state="intent", run="r1", stale=True)


@pytest.mark.parametrize("record", [None, DONE, FLIGHT, FAILED, STALE])
@pytest.mark.parametrize("same", [True, False])
def test_unknown_acts_on_nothing(record, same):
    assert decide(Facts(record=record, same=same, verdict=unknown("x"))).action == "wait"


@pytest.mark.parametrize(
    ("record", "same", "verdict", "action", "words"),
    [
        (DONE, True, done("there"), "skip", "there"),
        (DONE, True, done(), "skip", "done in run r1, and still so"),
        (DONE, True, absent("gone"), "run", "drift: gone"),
        (DONE, True, partial(), "run", "drift: partial"),
        (DONE, False, done(), "run", "something that it needs has changed"),
        (DONE, False, absent(), "run", "something that it needs has changed"),
        (DONE, True, None, "skip", "done in run r1"),
        (FLIGHT, True, done("id 7"), "adopt", "it was done when the earlier run ended: id 7"),
        (FAILED, True, done(), "adopt", "it was done when the earlier run ended"),
        (FLIGHT, False, done(), "run", "something that it needs has changed"),
        (FLIGHT, True, absent("no"), "run", "a run ended in the middle of it: no"),
        (FAILED, True, partial(), "run", "it failed last time: partial"),
        (FLIGHT, True, None, "run", "a run ended in the middle of it"),
        (STALE, True, done(), "run", "a run ended in the middle of it, after a change"),
        (None, False, done("seen"), "adopt", "seen"),
        (None, False, done(), "adopt", "already there"),
        (None, False, absent("no"), "run", "no"),
        (None, False, absent(), "run", "not there"),
        (None, False, partial(), "run", "half there"),
        (None, False, None, "run", "not done yet"),
    ],
)
def test_each_row(record, same, verdict, action, words):
    decision = decide(Facts(record=record, same=same, verdict=verdict))
    assert (decision.action, decision.reason) == (action, words)


def test_changes_are_named():
    assert (
        decide(Facts(record=DONE, same=False, changed_inputs=["image", "port"])).reason
        == "changed: image, port"
    )
    facts = Facts(record=DONE, changed_reads=["a"], verdict=done())
    assert decide(facts).reason == "the result of a has changed"


def test_at_least_once_says_so():
    assert "at least once" in decide(Facts(record=FLIGHT, at_least_once=True)).reason
    assert "at least once" not in decide(Facts(record=None, at_least_once=True)).reason


def test_what_only_looks_always_runs():
    assert decide(Facts(record=DONE, always=True)).action == "run"
