"""Whoever listens has no say in what happens: a subscriber that raises changes no outcome."""

from __future__ import annotations

import pytest

from holdfast.engine import Step, Workflow
from holdfast.errors import StepError
from holdfast.events import Bus, RunFinished, RunStarted, StepFailed, StepFinished, StepSkipped, StepStarted


def deaf_to(kind):
    def subscriber(event):
        if isinstance(event, kind):
            raise BrokenPipeError(32, "Broken pipe")

    return subscriber


@pytest.mark.parametrize("kind", [RunStarted, StepStarted, StepFinished, RunFinished])
def test_an_effect_that_happened_is_done_whoever_could_not_hear_of_it(store, world, kind):
    mail = Step("mail", repeat="at-least-once", run=lambda ctx: world.made.append("mail"))
    flow = Workflow("w", [mail, Step("after", needs=["mail"], repeat="safe", run=lambda ctx: None)])
    flow.run(store=store, bus=Bus(deaf_to(kind)))
    assert flow.run(store=store).changed == ()
    assert world.made == ["mail"]
    assert [run.outcome for run in store_runs(store)] == ["finished", "finished"]


def test_a_skipped_step_is_skipped(store, world):
    flow = Workflow("w", [Step("x", repeat="safe", run=lambda ctx: world.made.append("x"))])
    flow.run(store=store)
    assert flow.run(store=store, bus=Bus(deaf_to(StepSkipped))).changed == ()
    assert [run.outcome for run in store_runs(store)] == ["finished", "finished"]


def test_a_failed_step_fails_with_its_own_error(store):
    def fails(ctx):
        raise OSError("no route")

    with pytest.raises(StepError, match="no route"):
        Workflow("w", [Step("x", repeat="safe", run=fails)]).run(store=store, bus=Bus(deaf_to(StepFailed)))
    assert [run.outcome for run in store_runs(store)] == ["failed"]


def test_the_others_hear_on_and_the_first_error_is_kept():
    heard, lost = [], []

    def breaks(event):
        lost.append(event)
        raise ConnectionError("gone")

    bus = Bus(breaks, heard.append)
    for name in "ab":
        bus.emit(StepStarted(step=name, title=name))
    assert [event.step for event in heard] == ["a", "b"]
    assert [event.step for event in lost] == ["a"]
    assert [str(error) for error in bus.failures] == ["gone"]


def test_a_flaw_in_a_subscriber_is_warned_of():
    def flawed(event):
        raise KeyError("typo")

    bus = Bus(flawed)
    with pytest.warns(RuntimeWarning, match="a subscriber of events failed and hears no more: KeyError"):
        bus.emit(StepStarted(step="a", title="a"))


def test_ctrl_c_in_a_subscriber_is_ctrl_c():
    def interrupted(event):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        Bus(interrupted).emit(StepStarted(step="a", title="a"))


def store_runs(store):
    store.open()
    return store.runs()
