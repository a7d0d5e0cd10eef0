"""A failed step causes one event and one log entry, both without secrets."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from holdfast.errors import PermanentError, StepError
from holdfast.events import RunFailed, StepFailed
from holdfast.workflow import Step, Workflow

if TYPE_CHECKING:
    from .conftest import World

VALUE = "hunter2-hunter2"


def test_foreign_error_is_raised_with_secret_redacted(store, world: World):
    def run(ctx):
        ctx.secret("vault:db", VALUE)
        error = OSError(f"login with {VALUE} refused")
        error.add_note(f"tried {VALUE}")
        raise error

    with pytest.raises(StepError, match="login with ••• refused") as caught:
        Workflow("w", [Step("x", run=run, repeat="safe")]).run(store=store, bus=world.bus)
    assert VALUE not in f"{caught.value}{caught.value.message}{caught.value.__notes__}"
    assert caught.value.__notes__ == ["tried •••"]


def test_holdfast_error_is_raised_with_secret_redacted(store, world: World):
    def run(ctx):
        ctx.secret("vault:db", VALUE)
        raise PermanentError(f"no user {VALUE}", hint=f"Make {VALUE}.")

    with pytest.raises(PermanentError, match="no user •••") as caught:
        Workflow("w", [Step("x", run=run, repeat="safe")]).run(store=store, bus=world.bus)
    assert caught.value.hint == "Make •••."
    assert world.of(RunFailed)[0].hint == "Make •••."
    store.open()
    assert VALUE not in str(store.runs()[0])


def test_failure_before_step_start_is_reported_and_recorded(store, world: World):
    def inputs(ctx):
        ctx.secret("vault:db", VALUE)
        raise KeyError(VALUE)

    with pytest.raises(StepError, match="step 'x' failed: KeyError: '•••'"):
        Workflow("w", [Step("x", run=lambda ctx: None, inputs=inputs, repeat="safe")]).run(
            store=store, bus=world.bus
        )
    assert [(event.step, event.code) for event in world.of(StepFailed)] == [("x", "step-failed")]
    assert VALUE not in world.of(StepFailed)[0].error
    store.open()
    assert [(log.step, log.outcome) for log in store.runs()[0].steps] == [("x", "failed")]
