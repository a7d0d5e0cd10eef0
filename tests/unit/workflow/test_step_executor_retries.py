"""Attempts of a step: its policy repeats them, and the probe runs between them."""

from __future__ import annotations

from holdfast.events import (
    RetryScheduled,
    StepFinished,
)
from holdfast.retry import Policy, constant, testing_mode
from holdfast.workflow import Step, Workflow, absent, done

from .conftest import Make, World


def test_retries_follow_policy_and_emit_events(store, world: World):
    tries = []

    def flaky(ctx):
        tries.append(ctx.attempt)
        if len(tries) < 3:
            raise ConnectionResetError("reset")

    step = Step("x", run=flaky, repeat="safe", policy=Policy(attempts=4, backoff=constant(1)))
    with testing_mode():
        Workflow("w", [step]).run(store=store, bus=world.bus)
    assert tries == [1, 2, 3]
    assert [e.operation for e in world.of(RetryScheduled)] == ["x", "x"]
    store.open()
    assert store.load("w")["x"].tries == 3
    assert store.runs()[0].steps[0].retries == ("ConnectionResetError: reset",) * 2


def test_probe_runs_between_attempts(store, world: World):
    """A failed attempt may have had its effect, for example if only the response was lost."""

    def pay(ctx):
        world.made.append("pay")
        raise ConnectionResetError("reset after the effect")

    step = Step(
        "pay",
        probe=lambda ctx: done("paid", result={"id": 7}) if world.made else absent(),
        run=pay,
        policy=Policy(attempts=3, backoff=constant(1)),
    )
    use = Step("use", reads=["pay"], repeat="safe", run=lambda ctx: ctx.result("pay"))
    with testing_mode():
        outcome = Workflow("w", [step, use]).run(store=store, bus=world.bus)
    assert world.made == ["pay"]
    assert outcome.result("use") == {"id": 7}
    assert world.of(StepFinished)[0].note == "the failed attempt had its effect: paid"
    store.open()
    assert (store.load("w")["pay"].state, store.load("w")["pay"].tries) == ("done", 1)


def test_restore_runs_after_failed_attempt(store, world: World):
    class Connect(Make):
        policy = Policy(attempts=3, backoff=constant(1))

        def run(self, ctx):
            super().run(ctx)
            raise ConnectionResetError("reset after the effect, before the handle was kept")

        def restore(self, ctx, result):
            ctx.shared["handle"] = "restored"

    seen = []
    use = Step("use", needs=["connect"], repeat="safe", run=lambda ctx: seen.append(ctx.shared["handle"]))
    with testing_mode():
        Workflow("w", [Connect(world, "connect"), use]).run(store=store)
    assert (world.made, seen) == (["connect"], ["restored"])


def test_probe_of_old_effect_does_not_end_attempts_of_change(store, world: World):
    """With a changed input its yes may mean what was there before."""

    def flow(colour, fail):
        def run(ctx):
            if fail and ctx.attempt == 1:
                raise ConnectionResetError("reset before the effect")
            world.made.append(colour)

        policy = Policy(attempts=3, backoff=constant(1))
        return Workflow(
            "w",
            [
                Step(
                    "x",
                    inputs={"colour": colour},
                    probe=lambda ctx: done("something is there") if world.made else absent(),
                    run=run,
                    policy=policy,
                )
            ],
        )

    with testing_mode():
        flow("red", fail=False).run(store=store)
        flow("blue", fail=True).run(store=store)
    assert world.made == ["red", "blue"]


def test_effect_absent_before_attempt_is_attributed_to_it_despite_changed_input(store, world: World):
    def flow(colour, *, fail):
        def run(ctx):
            world.made.append(colour)
            if fail:
                raise ConnectionResetError("reset after the effect")

        return Workflow(
            "w",
            [
                Step(
                    "x",
                    inputs={"colour": colour},
                    probe=lambda ctx: done("there") if colour in world.made else absent(),
                    run=run,
                    policy=Policy(attempts=3, backoff=constant(1)),
                )
            ],
        )

    with testing_mode():
        flow("red", fail=False).run(store=store)
        flow("blue", fail=True).run(store=store)
    assert world.made == ["red", "blue"]


def test_success_is_not_probed(store, world: World):
    step = Make(world, "x")
    step.policy = Policy(attempts=3)
    Workflow("w", [step]).run(store=store)
    assert world.probed == ["x"]
