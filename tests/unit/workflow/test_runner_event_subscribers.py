"""A subscriber that raises does not change the outcome of a run."""

from __future__ import annotations

import pytest

from holdfast.errors import StepError
from holdfast.events import (
    EventBus,
    RunFinished,
    RunStarted,
    StepFailed,
    StepFinished,
    StepSkipped,
    StepStarted,
)
from holdfast.workflow import Step, Workflow


def deaf_to(kind):
    def subscriber(event):
        if isinstance(event, kind):
            raise BrokenPipeError(32, "Broken pipe")

    return subscriber


@pytest.mark.parametrize("kind", [RunStarted, StepStarted, StepFinished, RunFinished])
def test_effect_is_done_although_subscriber_failed(store, world, kind):
    mail = Step("mail", repeat="at-least-once", run=lambda ctx: world.made.append("mail"))
    flow = Workflow("w", [mail, Step("after", needs=["mail"], repeat="safe", run=lambda ctx: None)])
    flow.run(store=store, bus=EventBus(deaf_to(kind)))
    assert flow.run(store=store).changed == ()
    assert world.made == ["mail"]
    assert [run.outcome for run in store_runs(store)] == ["finished", "finished"]


def test_skipped_step_stays_skipped(store, world):
    flow = Workflow("w", [Step("x", repeat="safe", run=lambda ctx: world.made.append("x"))])
    flow.run(store=store)
    assert flow.run(store=store, bus=EventBus(deaf_to(StepSkipped))).changed == ()
    assert [run.outcome for run in store_runs(store)] == ["finished", "finished"]


def test_failed_step_keeps_its_error(store):
    def fails(ctx):
        raise OSError("no route")

    with pytest.raises(StepError, match="no route"):
        Workflow("w", [Step("x", repeat="safe", run=fails)]).run(
            store=store, bus=EventBus(deaf_to(StepFailed))
        )
    assert [run.outcome for run in store_runs(store)] == ["failed"]


def test_other_subscribers_continue_and_first_error_is_kept():
    heard, lost = [], []

    def breaks(event):
        lost.append(event)
        raise ConnectionError("gone")

    bus = EventBus(breaks, heard.append)
    for name in "ab":
        bus.emit(StepStarted(step=name, title=name))
    assert [event.step for event in heard] == ["a", "b"]
    assert [event.step for event in lost] == ["a"]
    assert [str(error) for error in bus.subscriber_errors] == ["gone"]


def test_subscriber_error_is_a_warning():
    def flawed(event):
        raise KeyError("typo")

    bus = EventBus(flawed)
    with pytest.warns(RuntimeWarning, match="event subscriber removed because it raised KeyError"):
        bus.emit(StepStarted(step="a", title="a"))


def test_ctrl_c_in_subscriber_interrupts_run():
    def interrupted(event):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        EventBus(interrupted).emit(StepStarted(step="a", title="a"))


def store_runs(store):
    store.open()
    return store.runs()
