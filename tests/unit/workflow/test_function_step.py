"""Steps from functions: where their arguments come from, what their inputs are, and mistakes in them."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime

import pytest

from holdfast.errors import StepResultError, WorkflowError
from holdfast.workflow import MemoryStore, Step, StepContext, Workflow, absent, done, result_of


@dataclass
class Report:
    id: str
    at: datetime


def make_publish(world):
    publish = Workflow("publish")

    @publish.step(repeat="safe")
    def reserve() -> Report:
        world.append("reserve")
        return Report("r1", datetime(2026, 1, 1, tzinfo=UTC))

    def find(server: list[str], report: Report = result_of(reserve)):
        return done(result=report.id) if report.id in server else absent()

    @publish.step("send", probe=find)
    def upload(server: list[str], title: str, report: Report = result_of(reserve)) -> str:
        world.append(("send", title, report))
        server.append(report.id)
        return report.id

    @publish.step(needs=[upload], repeat="safe")
    def announce(ctx: StepContext, title: str, copies: int = 2, name: str = result_of(upload)):
        world.append((ctx.step.name, title, copies, name))

    return publish, upload


def test_arguments_are_results_bound_values_parameters_and_the_context():
    world, server = [], []
    publish, _ = make_publish(world)
    publish.bind(server=server).run({"title": "Q3"})
    report = Report("r1", datetime(2026, 1, 1, tzinfo=UTC))
    assert world == ["reserve", ("send", "Q3", report), ("announce", "Q3", 2, "r1")]
    assert server == ["r1"]


def test_parameters_of_the_run_are_inputs_and_bound_values_are_not():
    world, server, store = [], [], MemoryStore()
    publish, _ = make_publish(world)
    publish.bind(server=server).run({"title": "Q3"}, store=store)
    assert publish.bind(server=["r1", "other"]).run({"title": "Q3"}, store=store).changed == ()
    assert publish.bind(server=server).run({"title": "Q4"}, store=store).changed == ("send", "announce")
    assert publish.bind(server=server).run({"title": "Q4", "copies": 3}, store=store).changed == ("announce",)


def test_probe_receives_arguments_and_decides():
    world, server, store = [], [], MemoryStore()
    publish, _ = make_publish(world)
    publish.bind(server=server).run({"title": "Q3"}, store=store)
    assert publish.bind(server=[]).run({"title": "Q3"}, store=store).changed[0] == "send"
    plan = publish.bind(server=[]).plan({"title": "Q3"}, store=store)
    assert [step.action for step in plan] == ["skip", "run", "verify"]


def test_decorated_function_can_be_called_directly():
    world, server = [], []
    _, upload = make_publish(world)
    assert upload(server, "Q3", Report("x", datetime(2026, 1, 1, tzinfo=UTC))) == "x"
    assert server == ["x"]


def test_restore_receives_the_stored_result():
    restored, store = [], MemoryStore()
    flow = Workflow("w")

    def keep(ctx, result: dict[str, int], where: str):
        restored.append((ctx.step.name, result, where))

    @flow.step(repeat="safe", restore=keep)
    def count():
        return {"n": 1}

    flow.bind(where="here").run(store=store)
    flow.bind(where="here").run(store=store)
    assert restored == [("count", {"n": 1}, "here")]


def test_further_inputs_are_added_to_the_parameters():
    made, store = [], MemoryStore()
    versions = {"tool": 1}
    flow = Workflow("w")

    @flow.step(repeat="safe", inputs=lambda world: {"tool": world["tool"]})
    def build(title):
        made.append(title)

    for version, title in ((1, "a"), (1, "a"), (2, "a"), (2, "b")):
        versions["tool"] = version
        flow.bind(world=versions).run({"title": title}, store=store)
    assert made == ["a", "a", "b"]


def test_functions_and_classes_read_each_others_results():
    seen = []

    class First(Step):
        name = "first"
        repeat = "safe"

        def run(self, ctx):
            return 1

    flow = Workflow("w", [First()])

    @flow.step(repeat="safe", needs=["first"], reads=["first"])
    def second(ctx) -> int:
        return int(ctx.result("first")) + 1

    flow.add(
        Step("third", run=lambda ctx: seen.append(ctx.result("second")), reads=["second"], repeat="safe")
    )
    flow.run()
    assert seen == [2]


def test_result_of_a_step_that_returns_nothing_cannot_be_read():
    flow = Workflow("w")

    @flow.step(repeat="safe")
    def find():
        return None

    @flow.step(repeat="safe")
    def use(found: str | None = result_of(find)):
        raise AssertionError(found)

    with pytest.raises(StepResultError, match="'find' returned nothing, but 'use' reads its result"):
        flow.run()


def test_result_of_another_type_is_an_error_that_names_both_steps():
    flow = Workflow("w")

    @flow.step(repeat="safe")
    def count():
        return "three"

    @flow.step(repeat="safe")
    def use(n: int = result_of(count)):
        raise AssertionError(n)

    with pytest.raises(StepResultError, match=r"step 'use' reads the result of 'count' as .*int"):
        flow.run()


def test_missing_parameter_is_reported_before_the_first_step():
    made = []
    flow = Workflow("w")

    @flow.step(repeat="safe")
    def first():
        made.append("first")

    @flow.step(needs=[first], repeat="safe")
    def second(title):
        made.append(title)

    for call in (flow.run, flow.plan):
        with pytest.raises(WorkflowError, match="step 'second' has the parameter 'title'"):
            call({"titel": "Q3"})
    assert made == []


def not_a_step():
    pass


async def asynchronous():
    pass


@pytest.mark.parametrize(
    ("mistake", "message"),
    [
        (lambda flow: flow.step(not_a_step), "`Workflow.step` is used without arguments"),
        (lambda flow: flow.step(repeat="safe")(asynchronous), "coroutine function"),
        (lambda flow: flow.step(repeat="safe")(lambda *args: None), r"has the parameter \*args"),
        (lambda flow: flow.step("x", probe="p")(not_a_step), "`probe` of step 'x' must be a function"),
        (lambda flow: result_of(not_a_step), "is not a step"),
        (lambda flow: flow.step("y", needs=[not_a_step], repeat="safe")(not_a_step), "is not a step"),
    ],
)
def test_mistakes_are_reported_at_the_definition(mistake, message):
    flow = Workflow("w")
    with pytest.raises(WorkflowError, match=message):
        mistake(flow)


def test_misspelt_option_is_an_error():
    with pytest.raises(TypeError, match="prob"):
        Workflow("w").step(prob=not_a_step)
