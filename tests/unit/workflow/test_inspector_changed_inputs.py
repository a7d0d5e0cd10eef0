"""A changed input reruns exactly the steps that read it and their dependants."""

from __future__ import annotations

import pytest
from hypothesis import given, settings, strategies as st

from holdfast.errors import OperationCancelledError, TemporaryError, WorkflowError
from holdfast.events import EventBus, StepFinished
from holdfast.workflow import MemoryStore, Secret, SQLiteStore, Step, Workflow, done

from .conftest import Make, World


@st.composite
def graphs(draw):
    """A random graph: for each step, which earlier steps it needs and which parameters it reads."""
    size = draw(st.integers(1, 12))
    shape = []
    for i in range(size):
        needs = draw(st.sets(st.integers(0, i - 1), max_size=3)) if i else set()
        reads = draw(st.sets(st.sampled_from("pqr"), max_size=2))
        shape.append((sorted(needs), sorted(reads)))
    return draw(st.permutations(list(enumerate(shape))))


def build(shape, ran):
    def step(number, needs, reads):
        return Step(
            f"s{number}",
            needs=[f"s{need}" for need in needs],
            inputs=lambda ctx: {name: ctx.params[name] for name in reads},
            run=lambda ctx: ran.append(f"s{number}"),
            repeat="safe",
        )

    return Workflow("w", [step(number, needs, reads) for number, (needs, reads) in shape], workers=2)


def affected(shape, changed):
    """The steps that read what changed, and all that depend on them, by definition."""
    by_number = dict(shape)
    hit = {number for number, (_needs, reads) in shape if changed & set(reads)}
    for number in sorted(by_number):
        if hit & set(by_number[number][0]):
            hit.add(number)
    return {f"s{number}" for number in hit}


@given(graphs(), st.sets(st.sampled_from("pqr")), st.data())
@settings(max_examples=150, deadline=None)
def test_only_affected_steps_run_again(shape, changed, data):
    ran, store = [], MemoryStore()
    flow = build(shape, ran)
    before = {"p": 1, "q": "x", "r": [1]}
    after = {**before, **{name: f"new {name}" for name in changed}}
    flow.run(before, store=store)
    assert len(ran) == len(shape)
    ran.clear()
    flow.run(after, store=store)
    assert set(ran) == affected(shape, changed)
    assert len(ran) == len(set(ran))
    ran.clear()
    assert flow.run(after, store=store).changed == ()


@given(graphs(), st.sampled_from("pqr"), st.data())
@settings(max_examples=100, deadline=None)
def test_change_reaches_dependants_after_crash(shape, changed, data):
    ran, store = [], MemoryStore()
    before = {"p": 1, "q": 1, "r": 1}
    build(shape, ran).run(before, store=store)
    after = {**before, changed: 2}
    expected = affected(shape, {changed})
    ran.clear()
    if expected:
        victim = data.draw(st.sampled_from(sorted(expected)))
        flow = build(shape, ran)
        original = flow.graph.steps[victim].run

        def dies(ctx):
            raise TemporaryError("died")

        flow.graph.steps[victim].__dict__["run"] = dies
        with pytest.raises(TemporaryError):
            flow.run(after, store=store)
        flow.graph.steps[victim].__dict__["run"] = original
    build(shape, ran).run(after, store=store)
    assert set(ran) == expected
    assert len(ran) == len(set(ran))


def test_reason_names_changed_input(store, world: World):
    flow = Workflow("w", [Make(world, "a"), Make(world, "b", ("a",))])
    flow.run({"a": "red"}, store=store)
    notes = []
    flow.run(
        {"a": "blue"},
        store=store,
        bus=EventBus(lambda e: notes.append(e) if isinstance(e, StepFinished) else None),
    )
    assert [(e.step, e.note) for e in notes] == [
        ("a", "changed: colour"),
        ("b", "a required step changed"),
    ]


def test_change_survives_crash_before_effect_with_permissive_probe(store):
    """The old effect is there, so the probe says yes; the change must be applied all the same."""
    applied = []

    def run(ctx):
        if ctx.params == "dies":
            raise KeyboardInterrupt
        applied.append(ctx.params)

    def flow(colour):
        return Workflow(
            "w", [Step("x", inputs={"colour": colour}, probe=lambda ctx: done("something is there"), run=run)]
        )

    flow("red").run("red", store=store)  # adopted: it already exists
    assert applied == []
    with pytest.raises(OperationCancelledError):
        flow("blue").run("dies", store=store)
    flow("blue").run("again", store=store)
    assert applied == ["again"]


def test_code_change_does_not_block_interrupted_run(store):
    def old(ctx):
        return "old"

    def fails(ctx):
        raise TemporaryError("half done")

    flow = [Step("a", run=old, repeat="safe"), Step("b", needs=["a"], run=fails, repeat="safe")]
    with pytest.raises(TemporaryError):
        Workflow("w", flow).run(store=store)
    edited = [
        Step("a", run=lambda ctx: "new", repeat="safe"),
        Step("extra", run=lambda ctx: "extra", repeat="safe"),
        Step("b", needs=["a"], run=lambda ctx: ctx.result("a"), repeat="safe"),
    ]
    outcome = Workflow("w", edited).run(store=store)
    assert set(outcome.changed) == {"extra", "b"}
    assert outcome.result("b") == "old"


def test_new_step_version_runs_again_with_dependants(store):
    def flow(version):
        return Workflow(
            "w",
            [
                Step("a", run=lambda ctx: 1, repeat="safe", version=version),
                Step("b", needs=["a"], run=lambda ctx: 1, repeat="safe"),
                Step("c", run=lambda ctx: 1, repeat="safe"),
            ],
        )

    flow(1).run(store=store)
    assert set(flow(2).run(store=store).changed) == {"a", "b"}


def test_changed_secret_reruns_step_and_is_not_stored(tmp_path):
    store = SQLiteStore(tmp_path / "s.db")

    def flow(value):
        token = Secret("env:TOKEN", value)
        return Workflow("w", [Step("login", inputs={"token": token}, run=lambda ctx: "ok", repeat="safe")])

    assert flow("hunter2-hunter2").run(store=store).changed == ("login",)
    assert flow("hunter2-hunter2").run(store=store).changed == ()
    assert flow("other-password").run(store=store).changed == ("login",)
    files = b"".join(path.read_bytes() for path in tmp_path.iterdir())
    assert b"hunter2" not in files
    assert b"other-password" not in files


def test_key_order_is_ignored(store):
    def flow(inputs):
        return Workflow("w", [Step("a", inputs=inputs, run=lambda ctx: 1, repeat="safe")])

    flow({"x": 1, "y": {"b": 1, "a": 2}}).run(store=store)
    assert flow({"y": {"a": 2, "b": 1}, "x": 1}).run(store=store).changed == ()


@pytest.mark.parametrize(
    ("inputs", "words"),
    [
        ({"x": object()}, "input 'x' of step 'a' cannot be fingerprinted"),
        ([("x", 1)], "inputs of step 'a' must be a mapping, not list"),
        (["x"], "inputs of step 'a' must be a mapping, not list"),
        (None, "inputs of step 'a' must be a mapping, not NoneType"),
        ({1: "x"}, "names of inputs of step 'a' must be strings, not 1"),
    ],
)
def test_unhashable_inputs_are_named_before_any_effect(store, world: World, inputs, words):
    bad = Step("a", run=lambda ctx: world.made.append("a"), repeat="safe")
    bad.__dict__["inputs"] = lambda ctx: inputs
    with pytest.raises(WorkflowError, match=words):
        Workflow("w", [bad]).run(store=store)
    assert world.made == []


@pytest.mark.parametrize("bad", [["x"], {"x": object()}], ids=["a list", "no JSON"])
def test_invalid_inputs_keep_previous_step_record(store, world: World, bad):
    def flow(inputs):
        mail = Step("mail", repeat="at-least-once", run=lambda ctx: world.made.append("mail"))
        after = Step("after", needs=["mail"], repeat="safe", run=lambda ctx: None, inputs=lambda ctx: inputs)
        return Workflow("w", [mail, after])

    with pytest.raises(WorkflowError):
        flow(bad).run(store=store)
    flow({"x": 1}).run(store=store)
    with pytest.raises(WorkflowError):
        flow(bad).run(store=store)  # a record is there now, and the quick way must not be shorter
    assert world.made == ["mail"]
    store.open()
    assert [run.outcome for run in store.runs()] == ["failed", "finished", "failed"]


def test_needs_order_is_ignored(store, world: World):
    def flow(needs):
        first = [Step(name, repeat="safe", run=lambda ctx: 1) for name in "ab"]
        mail = Step("mail", needs=needs, repeat="at-least-once", run=lambda ctx: world.made.append("mail"))
        after = Step("after", reads=["b", "a"], needs=["mail"], repeat="safe", run=lambda ctx: 1)
        return Workflow("w", [*first, mail, after])

    flow(["a", "b"]).run(store=store)
    assert flow(["b", "a"]).run(store=store).changed == ()
    assert world.made == ["mail"]
