"""What a failed step leaves: one event, one line in the story, and no secret in any word of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from holdfast.engine import Step, Workflow
from holdfast.errors import PermanentError, StepError
from holdfast.events import RunFailed, StepFailed

if TYPE_CHECKING:
    from .conftest import World

VALUE = "hunter2-hunter2"


def test_a_foreign_error_is_raised_without_the_value_of_a_secret(store, world: World):
    def run(ctx):
        ctx.secret("vault:db", VALUE)
        error = OSError(f"login with {VALUE} refused")
        error.add_note(f"tried {VALUE}")
        raise error

    with pytest.raises(StepError, match="login with ••• refused") as caught:
        Workflow("w", [Step("x", run=run, repeat="safe")]).run(store=store, bus=world.bus)
    assert VALUE not in f"{caught.value}{caught.value.message}{caught.value.__notes__}"
    assert caught.value.__notes__ == ["tried •••"]


def test_an_error_of_the_tree_is_raised_without_it_too(store, world: World):
    def run(ctx):
        ctx.secret("vault:db", VALUE)
        raise PermanentError(f"no user {VALUE}", hint=f"Make {VALUE}.")

    with pytest.raises(PermanentError, match="no user •••") as caught:
        Workflow("w", [Step("x", run=run, repeat="safe")]).run(store=store, bus=world.bus)
    assert caught.value.hint == "Make •••."
    assert world.of(RunFailed)[0].hint == "Make •••."
    store.open()
    assert VALUE not in str(store.runs()[0])


def test_a_failure_before_the_step_begins_is_told_and_kept(store, world: World):
    def inputs(ctx):
        ctx.secret("vault:db", VALUE)
        raise KeyError(VALUE)

    with pytest.raises(StepError, match="step 'x' failed: KeyError: '•••'"):
        Workflow("w", [Step("x", run=lambda ctx: None, inputs=inputs, repeat="safe")]).run(
            store=store, bus=world.bus
        )
    assert [(event.step, event.code) for event in world.of(StepFailed)] == [("x", "step.failed")]
    assert VALUE not in world.of(StepFailed)[0].error
    store.open()
    assert [(log.step, log.outcome) for log in store.runs()[0].steps] == [("x", "failed")]
