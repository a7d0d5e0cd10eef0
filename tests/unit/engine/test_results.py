"""Results: kept for later steps and later runs, made again when nobody kept them."""

from __future__ import annotations

import pytest

from holdfast.engine import Step, Workflow, absent, done
from holdfast.errors import ResultError

from .conftest import Make, World


def test_restore_puts_back_what_later_steps_use(store, world: World):
    class Connect(Make):
        def run(self, ctx):
            super().run(ctx)
            ctx.shared["handle"] = "fresh"
            return {"port": 7}

        def restore(self, ctx, result):
            ctx.shared["handle"] = f"restored {result['port']}"

    seen = []
    use = Step("use", needs=["connect"], run=lambda ctx: seen.append(ctx.shared["handle"]), repeat="always")
    flow = Workflow("w", [Connect(world, "connect"), use])
    flow.run(store=store)
    flow.run(store=store)
    assert seen == ["fresh", "restored 7"]


def test_restore_is_called_with_nothing_where_nobody_kept_the_result(world: World):
    world.things["x"] = "there before"
    given = []

    class Found(Make):
        def restore(self, ctx, result):
            given.append(result)

    Workflow("w", [Found(world, "x")]).run()
    assert given == [None]


def test_a_missing_result_is_made_once_for_all_who_read_it(store, world: World):
    world.things["a"] = "there before"
    readers = [Make(world, f"r{i}", ("a",), reads="a") for i in range(4)]
    outcome = Workflow("w", [Make(world, "a"), *readers]).run(store=store)
    assert world.made.count("a") == 1
    assert "a" in outcome.changed
    assert all(outcome.result(f"r{i}")["seen"]["colour"] == "grey" for i in range(4))


def test_results_reach_dependants_in_later_runs(store, world: World):
    flow = Workflow("w", [Make(world, "a"), Make(world, "b", ("a",), reads="a")])
    flow.run({"a": "red"}, store=store)
    del world.things["b"]
    flow.run({"a": "red"}, store=store)
    assert flow.run({"a": "red"}, store=store).result("b")["seen"]["colour"] == "red"


def test_a_result_nobody_kept_is_made_again_when_it_is_read(store, world: World):
    """The probe finds the thing there, but only `run` knows its result: then it runs again, once."""
    world.things["a"] = "there before"
    reader = Make(world, "b", ("a",), reads="a")
    outcome = Workflow("w", [Make(world, "a"), reader]).run(store=store)
    assert world.made == ["a", "b"]
    assert outcome.result("b")["seen"] == {"colour": "grey", "seen": None}
    assert Workflow("w", [Make(world, "a"), reader]).run(store=store).changed == ()


def test_a_result_seen_by_the_probe_needs_no_run(store, world: World):
    step = Step(
        "a", run=lambda ctx: world.made.append("a"), probe=lambda ctx: done("seen", result={"ip": "10.0.0.2"})
    )
    use = Step("b", needs=["a"], run=lambda ctx: ctx.result("a")["ip"], repeat="safe")
    assert Workflow("w", [step, use]).run(store=store).result("b") == "10.0.0.2"
    assert world.made == []


def test_readers_run_again_when_a_repaired_step_brings_another_result(store, world: World):
    ids = iter([1, 2, 2])
    there = []

    def make(ctx):
        there.append(1)
        return next(ids)

    ran = []
    steps = [
        Step("a", run=make, probe=lambda ctx: done() if there else absent()),
        Step("reads", needs=["a"], run=lambda ctx: ran.append(ctx.result("a")), repeat="safe"),
        Step("only-after", needs=["a"], run=lambda ctx: ran.append("after"), repeat="safe"),
    ]
    flow = Workflow("w", steps, workers=1)
    flow.run(store=store)
    assert ran == [1, "after"]
    there.clear()
    flow.run(store=store)  # the result changed: the reader runs again, the other does not
    assert ran == [1, "after", 2]
    there.clear()
    flow.run(store=store)  # it came out the same: nobody runs again
    assert ran == [1, "after", 2]


def test_the_result_of_a_step_that_returned_nothing_is_an_error_where_it_is_read(store, world: World):
    flow = Workflow(
        "w",
        [
            Step("a", run=lambda ctx: None, repeat="safe"),
            Step("b", needs=["a"], run=lambda ctx: (ctx.result("a"), world.made.append("b")), repeat="safe"),
        ],
    )
    with pytest.raises(ResultError, match="'b' reads the result of 'a', which returned nothing"):
        flow.run(store=store)
    assert world.made == []
