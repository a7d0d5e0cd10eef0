"""A preview shows skip, verify or run for every step, with the reason, and changes nothing."""

from __future__ import annotations

import pytest
from hypothesis import given, settings, strategies as st

from holdfast.workflow import MemoryStore, SQLiteStore, Step, Workflow, absent, done, unknown

from .conftest import Make, World
from .test_inspector_changed_inputs import build, graphs


def actions(plan):
    return {step.step: step.action for step in plan}


def test_preview_before_during_and_after_run(chain, store, world: World):
    plan = chain.plan(store=store)
    assert set(actions(plan).values()) == {"run"}
    assert plan.has_changes
    assert not store.path.exists()
    chain.run(store=store)
    plan = chain.plan(store=store)
    assert set(actions(plan).values()) == {"skip"}
    assert not plan.has_changes
    del world.things["b"]
    plan = chain.plan(store=store)
    assert actions(plan) == {"a": "skip", "b": "run", "c": "verify", "d": "skip"}
    assert {step.step: step.reason for step in plan}["b"] == "drift: it is not there"
    assert world.made == ["a", "b", "c", "d"] or sorted(world.made) == ["a", "b", "c", "d"]


def test_changed_input_shows_all_affected_steps(chain, store):
    chain.run(store=store)
    plan = chain.plan({"a": "red"}, store=store)
    assert actions(plan) == {"a": "run", "b": "run", "c": "run", "d": "skip"}
    assert next(iter(plan)).reason == "changed: colour"


def test_preview_marks_data_steps_and_possible_repeats():
    plan = Workflow(
        "w", [Step("mail", run=lambda ctx: None, repeat="at-least-once", touches=["outbox"])]
    ).plan()
    (step,) = plan
    assert (step.touches, step.at_least_once) == (("outbox",), True)
    assert "mail" in str(plan)


def test_read_only_steps_run_in_preview():
    seen = []
    look = Step("look", run=lambda ctx: seen.append(ctx.is_preview) or {"v": 1}, repeat="always")
    use = Step(
        "use",
        needs=["look"],
        inputs=lambda ctx: {"v": ctx.result("look")["v"]},
        run=lambda ctx: 1,
        repeat="safe",
    )
    plan = Workflow("w", [look, use]).plan()
    assert seen == [True]
    assert actions(plan) == {"look": "verify", "use": "run"}


def test_step_reading_future_result(store):
    there = []
    make = Step(
        "make",
        probe=lambda ctx: done() if there else absent("gone"),
        run=lambda ctx: there.append(1) or {"id": len(there)},
    )
    use = Step(
        "use",
        needs=["make"],
        inputs=lambda ctx: {"id": ctx.result("make")["id"]},
        run=lambda ctx: 1,
        repeat="safe",
    )
    after = Step("after", needs=["use"], run=lambda ctx: 1, repeat="safe")
    flow = Workflow("w", [make, use, after])
    assert actions(flow.plan(store=store)) == {"make": "run", "use": "run", "after": "run"}
    flow.run(store=store)
    there.clear()
    plan = flow.plan(store=store)
    assert actions(plan)["make"] == "run"
    assert actions(plan)["use"] == "verify"


def test_unknown_probe_is_not_awaited():
    flow = Workflow("w", [Step("x", probe=lambda ctx: unknown("no answer"), run=lambda ctx: None)])
    plan = flow.plan()
    (step,) = plan
    assert (step.action, step.reason) == ("verify", "state unknown: no answer")
    assert plan.has_changes  # it might


def test_read_only_steps_change_nothing():
    assert not Workflow("w", [Step("look", run=lambda ctx: None, repeat="always")]).plan().has_changes


def found_done(world: World, **parts):
    """Its probe sees what it made, but not what it returned."""
    world.things["pay"] = "by a run that was killed"

    def pay(ctx):
        world.made.append("pay")
        return {"receipt": 1}

    return Step("pay", probe=lambda ctx: done("paid"), run=pay, **parts)


def test_step_run_for_its_result_is_predicted(world: World):
    book = Step("book", reads=["pay"], repeat="safe", run=lambda ctx: ctx.result("pay"))
    flow = Workflow("w", [found_done(world, repeat="safe", touches=["money"]), book])
    pay, _ = plan = flow.plan()
    assert actions(plan) == {"pay": "run", "book": "run"}
    assert (pay.reason, pay.touches) == ("its result is not recorded, and 'book' needs it", ("money",))
    assert set(flow.run().changed) == {"pay", "book"}


def test_step_possibly_run_for_its_result_is_marked(world: World):
    book = Step("book", needs=["pay"], repeat="safe", run=lambda ctx: 1)
    pay, _ = plan = Workflow("w", [found_done(world, repeat="safe"), book]).plan()
    assert actions(plan) == {"pay": "verify", "book": "run"}
    assert pay.reason == "paid; runs again if its result is needed"


def test_reader_of_unavailable_result_is_reported(world: World):
    book = Step("book", reads=["pay"], repeat="safe", run=lambda ctx: ctx.result("pay"))
    plan = Workflow("w", [found_done(world), book]).plan()
    assert actions(plan) == {"pay": "skip", "book": "verify"}
    assert "would fail: the result of 'pay' is not recorded" in str(plan)
    assert plan.has_changes


def test_unread_result_is_not_required(world: World):
    pay, _ = plan = Workflow("w", [found_done(world), Make(world, "book", ("pay",))]).plan()
    assert actions(plan) == {"pay": "skip", "book": "run"}
    assert pay.reason == "paid; its result is not recorded"
    world.things["book"] = "there"
    assert not Workflow("w", [found_done(world), Make(world, "book", ("pay",))]).plan().has_changes


def test_failing_probe_is_reported():
    def probe(ctx):
        raise ConnectionRefusedError("refused")

    (step,) = Workflow("w", [Step("x", probe=probe, run=lambda ctx: None)]).plan()
    assert (step.action, step.reason) == ("verify", "state unknown: refused")


def test_store_is_not_modified(chain, tmp_path):
    path = tmp_path / "deep" / "s.db"
    chain.run(store=SQLiteStore(path))
    before = {p.name: p.read_bytes() for p in path.parent.iterdir()}
    chain.plan(store=SQLiteStore(path))
    assert {p.name: p.read_bytes() for p in path.parent.iterdir() if p.suffix == ".db"} == before


@given(graphs(), st.sets(st.sampled_from("pqr")))
@settings(max_examples=60, deadline=None)
@pytest.mark.filterwarnings("ignore")
def test_preview_matches_run(shape, changed):
    from holdfast.workflow import MemoryStore

    ran, store = [], MemoryStore()
    flow = build(shape, ran)
    before = {"p": 1, "q": 1, "r": 1}
    flow.run(before, store=store)
    after = {**before, **dict.fromkeys(changed, 2)}
    plan = flow.plan(after, store=store)
    assert {s.step for s in plan if s.action == "run"} == set(flow.run(after, store=store).changed)


def test_custom_store_class_is_used_directly(tmp_path, world):
    class Theirs(MemoryStore):
        def __init__(self, path, *, table):
            super().__init__()
            self.path, self.table = path, table

    flow = Workflow("w", [Step("x", run=lambda ctx: world.made.append("x"), repeat="safe")])
    store = Theirs(tmp_path, table="t")
    flow.run(store=store)
    assert [step.action for step in flow.plan(store=store)] == ["skip"]
