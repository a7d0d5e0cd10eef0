"""Results are stored for later steps and runs, and produced again if they are unknown."""

from __future__ import annotations

import threading

import pytest

from holdfast.errors import OperationCancelledError, StepError, StepResultError, StepStateUnknownError
from holdfast.events import StepFinished
from holdfast.retry import Policy, constant, testing_mode
from holdfast.workflow import Step, Workflow, absent, done, unknown

from .conftest import Make, World


def test_restore_provides_state_for_later_steps(store, world: World):
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


def test_restore_receives_none_without_stored_result(world: World):
    world.things["x"] = "there before"
    given = []

    class Found(Make):
        def restore(self, ctx, result):
            given.append(result)

    Workflow("w", [Found(world, "x")]).run()
    assert given == [None]


class Safe(Make):
    """Says that a second time does no harm."""

    repeat = "safe"


def test_missing_result_is_computed_once_for_all_readers(store, world: World):
    world.things["a"] = "there before"
    readers = [Make(world, f"r{i}", ("a",), reads="a") for i in range(4)]
    outcome = Workflow("w", [Safe(world, "a"), *readers]).run(store=store)
    assert world.made.count("a") == 1
    assert "a" in outcome.changed
    assert all(outcome.result(f"r{i}")["seen"]["colour"] == "grey" for i in range(4))


def test_results_reach_dependants_in_later_runs(store, world: World):
    flow = Workflow("w", [Make(world, "a"), Make(world, "b", ("a",), reads="a")])
    flow.run({"a": "red"}, store=store)
    del world.things["b"]
    flow.run({"a": "red"}, store=store)
    assert flow.run({"a": "red"}, store=store).result("b")["seen"]["colour"] == "red"


def test_unstored_result_is_recomputed_when_read(store, world: World):
    """The probe finds the thing there, but only `run` knows its result: then it runs again, once."""
    world.things["a"] = "there before"
    reader = Make(world, "b", ("a",), reads="a")
    outcome = Workflow("w", [Safe(world, "a"), reader]).run(store=store, bus=world.bus)
    assert world.made == ["a", "b"]
    assert outcome.result("b")["seen"] == {"colour": "grey", "seen": None}
    assert outcome.skipped == {}
    assert world.of(StepFinished)[0].note == "its result is unknown and 'b' reads it"
    assert Workflow("w", [Safe(world, "a"), reader]).run(store=store).changed == ()


def test_reader_starts_once_when_result_is_recomputed(store, world: World):
    """It may have had its effect by the time it reads: the result is made in place."""
    world.things["net"] = "there before"
    mails = []

    def mail(ctx):
        mails.append(ctx.attempt)
        return ctx.result("net")

    steps = [Safe(world, "net"), Step("mail", needs=["net"], repeat="at-least-once", run=mail)]
    assert Workflow("w", steps).run(store=store).result("mail") == {"colour": "grey", "seen": None}
    assert mails == [1]
    store.open()
    assert {log.step: log.tries for log in store.runs()[0].steps} == {"net": 1, "mail": 1}


def test_declared_reads_are_available_before_start(store, world: World):
    world.things["net"] = "there before"
    mail = Step("mail", reads=["net"], repeat="at-least-once", run=lambda ctx: world.made.append("mail"))
    Workflow("w", [Safe(world, "net"), mail]).run(store=store)
    assert world.made == ["net", "mail"]


@pytest.mark.parametrize("how", ["needs", "reads"])
def test_done_step_is_rerun_for_result_only_if_declared(store, world: World, how):
    world.things["pay"] = "by a run that was killed"
    book = Step("book", repeat="safe", run=lambda ctx: ctx.result("pay"), **{how: ["pay"]})
    flow = Workflow("w", [Make(world, "pay"), book])
    for _ in range(2):
        with pytest.raises(
            StepResultError, match="'book' reads the result of 'pay', which is done but has no known result"
        ) as caught:
            flow.run(store=store)
    assert "done(..., result=...)" in caught.value.hint
    assert world.made == []


def test_probe_runs_again_before_rerun_for_result(store, world: World):
    verdicts = iter([done("there"), done("there", result={"id": 7})])
    pay = Step("pay", probe=lambda ctx: next(verdicts), run=lambda ctx: world.made.append("pay"))
    book = Step("book", needs=["pay"], repeat="safe", run=lambda ctx: ctx.result("pay"))
    assert Workflow("w", [pay, book]).run(store=store).result("book") == {"id": 7}
    assert world.made == []
    store.open()
    assert bytes(store.load("w")["pay"].result) == b'{"id":7}'


def test_unknown_probe_prevents_rerun_for_result(store, world: World):
    verdicts = iter([done("there")])
    pay = Step(
        "pay",
        repeat="safe",
        probe=lambda ctx: next(verdicts, unknown("no answer")),
        run=lambda ctx: world.made.append("pay"),
    )
    book = Step("book", needs=["pay"], repeat="safe", run=lambda ctx: ctx.result("pay"))
    flow = Workflow("w", [pay, book], probe_policy=Policy(attempts=3, backoff=constant(1)))
    with testing_mode(), pytest.raises(StepStateUnknownError, match="no answer"):
        flow.run(store=store)
    assert world.made == []


def test_failed_rerun_for_result_names_that_step(store, world: World):
    world.things["net"] = "there before"

    class Broken(Safe):
        def run(self, ctx):
            raise OSError("no route")

    mail = Step("mail", needs=["net"], repeat="safe", run=lambda ctx: ctx.result("net"))
    with pytest.raises(StepError, match="step 'net' failed: OSError: no route"):
        Workflow("w", [Broken(world, "net"), mail]).run(store=store)
    store.open()
    assert [(log.step, log.outcome) for log in store.runs()[0].steps] == [
        ("net", "failed"),
        ("mail", "failed"),
    ]
    assert store.load("w")["net"].state == "failed"
    assert Workflow("w", [Safe(world, "net"), mail]).run(store=store).changed == ("net", "mail")


def test_stop_precedes_rerun_for_result(store, world: World):
    world.things["net"] = "there before"
    stop = threading.Event()

    def mail(ctx):
        stop.set()
        return ctx.result("net")

    steps = [Safe(world, "net"), Step("mail", needs=["net"], repeat="safe", run=mail)]
    with pytest.raises(OperationCancelledError):
        Workflow("w", steps).run(store=store, stop=stop)
    assert world.made == []


@pytest.mark.parametrize("part", ["inputs", "probe"])
def test_result_read_by_inputs_or_probe_is_computed(store, world: World, part):
    world.things["net"] = "there before"

    def inputs(ctx):
        return {"net": ctx.result("net")}

    def probe(ctx):
        return absent(ctx.result("net")["colour"])

    reader = Step("reader", needs=["net"], repeat="safe", run=lambda ctx: 1, **{part: locals()[part]})
    Workflow("w", [Safe(world, "net"), reader]).run(store=store)
    assert world.made == ["net"]


def test_result_from_probe_needs_no_run(store, world: World):
    step = Step(
        "a", run=lambda ctx: world.made.append("a"), probe=lambda ctx: done("seen", result={"ip": "10.0.0.2"})
    )
    use = Step("b", needs=["a"], run=lambda ctx: ctx.result("a")["ip"], repeat="safe")
    assert Workflow("w", [step, use]).run(store=store).result("b") == "10.0.0.2"
    assert world.made == []


def test_readers_run_again_when_repaired_step_returns_other_result(store, world: World):
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
    flow.run(store=store)  # the same result: no reader runs again
    assert ran == [1, "after", 2]


def test_untracked_reader_does_not_run_again_when_result_changes(store):
    results = iter([1, 2])
    exists = []

    def create(ctx):
        exists.append(True)
        return next(results)

    seen = []
    read = Step("b", needs=["a"], run=lambda ctx: seen.append(ctx.result("a", track=False)), repeat="safe")
    flow = Workflow("w", [Step("a", run=create, probe=lambda ctx: done() if exists else absent()), read])
    flow.run(store=store)
    exists.clear()
    flow.run(store=store)
    assert seen == [1]


def test_reading_none_result_is_an_error(store, world: World):
    flow = Workflow(
        "w",
        [
            Step("a", run=lambda ctx: None, repeat="safe"),
            Step("b", needs=["a"], run=lambda ctx: (ctx.result("a"), world.made.append("b")), repeat="safe"),
        ],
    )
    with pytest.raises(StepResultError, match="'b' reads the result of 'a', which returned nothing"):
        flow.run(store=store)
    assert world.made == []
