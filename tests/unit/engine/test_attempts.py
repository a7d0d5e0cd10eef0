"""Attempts of one step: its policy repeats them, and the world is asked between two of them."""

from __future__ import annotations

from holdfast.engine import Step, Workflow, absent, done
from holdfast.events import (
    RetryScheduled,
    StepFinished,
)
from holdfast.retry import Policy, constant, testing_mode

from .conftest import Make, World


def test_retries_go_through_the_policy_and_are_told(store, world: World):
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


def test_the_world_is_asked_between_two_attempts(store, world: World):
    """An attempt that failed may have had its effect all the same: a dropped answer is no refusal."""

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
    assert world.of(StepFinished)[0].note == "the attempt that failed had its effect: paid"
    store.open()
    assert (store.load("w")["pay"].state, store.load("w")["pay"].tries) == ("done", 1)


def test_what_a_failed_attempt_did_not_put_in_memory_is_restored(store, world: World):
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


def test_resolve_is_asked_between_attempts_where_there_is_one(store, world: World):
    def send(ctx):
        world.made.append("send")
        raise ConnectionResetError("reset")

    step = Step(
        "send",
        probe=lambda ctx: absent("the probe cannot see it"),
        resolve=lambda ctx: done("the log says so"),
        run=send,
        policy=Policy(attempts=3, backoff=constant(1)),
    )
    with testing_mode():
        Workflow("w", [step]).run(store=store)
    assert world.made == ["send"]


def test_a_probe_that_sees_the_old_effect_does_not_end_the_attempts_of_a_change(store, world: World):
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


def test_what_was_not_there_before_an_attempt_is_from_it_though_an_input_changed(store, world: World):
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


def test_a_success_is_not_asked_about(store, world: World):
    step = Make(world, "x")
    step.policy = Policy(attempts=3)
    Workflow("w", [step]).run(store=store)
    assert world.probed == ["x"]
