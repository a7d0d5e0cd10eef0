"""One clear error for what cannot be meant, before any effect, and nothing lost."""

from __future__ import annotations

import errno
import math
import os

import pytest

from holdfast.engine import Secret, SQLiteStore, Step, Workflow, absent
from holdfast.errors import ResultError, SecretLeakError, StoreError, WorkflowError

from .conftest import Make, World


def step(name, *needs, run=lambda ctx: None, **more):
    return Step(name, needs=needs, run=run, repeat="safe", **more)


def test_a_cycle_is_shown_as_a_path():
    with pytest.raises(WorkflowError, match=r"circle: .*→") as caught:
        Workflow("w", [step("a", "c"), step("b", "a"), step("c", "b"), step("d", "a")])
    path = str(caught.value).split(": ")[1].split(" → ")
    assert path[0] == path[-1]
    assert set(path) == {"a", "b", "c"}
    assert caught.value.exit_code == 2


def test_a_step_that_needs_itself():
    with pytest.raises(WorkflowError, match="a → a"):
        Workflow("w", [step("a", "a")])


def test_an_unknown_dependency_is_named_with_those_there_are():
    with pytest.raises(WorkflowError, match="step 'b' needs 'typo'") as caught:
        Workflow("w", [step("a"), step("b", "typo")])
    assert "'a', 'b'" in caught.value.hint


def test_two_steps_of_one_name():
    with pytest.raises(WorkflowError, match="two steps are called 'a'"):
        Workflow("w", [step("a"), step("a")])


@pytest.mark.parametrize("name", ["", "  ", "a\nb", "x" * 300, None, 3])
def test_names_that_are_none(name):
    bad = step("x")
    bad.__dict__["name"] = name
    with pytest.raises(WorkflowError, match="no usable name"):
        Workflow("w", [bad])


def test_a_class_in_place_of_a_step():
    with pytest.raises(WorkflowError, match="is not a Step"):
        Workflow("w", [Make])  # type: ignore[list-item]


def test_nothing_to_run():
    with pytest.raises(WorkflowError, match="nothing to run"):
        Workflow("w", [Step("a", probe=lambda ctx: absent())])


def test_no_probe_and_no_word_about_a_second_time():
    with pytest.raises(WorkflowError, match="no probe and does not say what a second time means"):
        Workflow("w", [Step("a", run=lambda ctx: None)])


def test_a_repeat_that_is_none():
    with pytest.raises(WorkflowError, match="it is one of"):
        Workflow("w", [Step("a", run=lambda ctx: None, repeat="never")])  # type: ignore[arg-type]


def test_needs_given_as_a_text():
    with pytest.raises(WorkflowError, match="list or tuple of names"):
        Workflow("w", [Step("a", run=lambda ctx: None, repeat="safe", needs="abc")])


async def asynchronous(ctx):
    return 1


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Workflow(5), "a workflow needs a name, and 5 is none"),
        (lambda: Workflow("w", None), "must be a list of steps, not None"),
        (lambda: Workflow("w", workers="two"), "at least one worker, not 'two'"),
        (lambda: Workflow("w", [step("a", ["x"])]), "`needs` of step 'a' must hold names"),
        (lambda: Workflow("w", [step("a", reads=[None])]), "`reads` of step 'a' must hold names"),
        (lambda: Workflow("w", [step("a", run=5)]), "`run` of step 'a' must be a function, not 5"),
        (lambda: Workflow("w", [step("a", probe="x")]), "`probe` of step 'a' must be a function"),
        (lambda: Workflow("w", [step("a", policy="x")]), "must be a holdfast.retry.Policy"),
        (lambda: Workflow("w", [step("a", run=asynchronous)]), "is asynchronous, and steps are not"),
    ],
)
def test_things_of_the_wrong_kind(make, words):
    with pytest.raises(WorkflowError, match=words):
        make()


def test_a_workflow_without_steps_or_name():
    with pytest.raises(WorkflowError, match="no steps"):
        Workflow("w").run()
    with pytest.raises(WorkflowError, match="needs a name"):
        Workflow("")


def test_a_step_declared_to_return_nothing_whose_dependant_reads_it():
    def silent(ctx) -> None:
        return None

    with pytest.raises(WorkflowError, match="'a' returns nothing, but 'b' reads its result"):
        Workflow("w", [step("a", run=silent), Step("b", reads=["a"], run=lambda ctx: None, repeat="safe")])


def test_a_step_that_returns_nothing_where_its_dependant_reads(store, world: World):
    flow = Workflow(
        "w",
        [step("a"), Step("b", reads=["a"], run=lambda ctx: world.made.append("b"), repeat="safe")],
    )
    with pytest.raises(ResultError, match="'a' returned nothing, but 'b' reads its result") as caught:
        flow.run(store=store)
    assert caught.value.hint == "Return from 'a' what is read there, or drop it from `reads`."
    assert world.made == []


def test_reading_a_result_that_need_not_be_there(store):
    flow = Workflow("w", [step("a"), step("b", run=lambda ctx: ctx.result("a"))], workers=1)
    with pytest.raises(WorkflowError, match="need not be done by then") as caught:
        flow.run(store=store)
    assert "needs" in caught.value.hint


@pytest.mark.parametrize(
    "value", [object(), {1, 2}, b"bytes", math.nan, {"x": object()}, "\ud800", {("a",): 1}]
)
def test_a_result_that_cannot_be_stored(store, world: World, value):
    flow = Workflow(
        "w", [Make(world, "first"), step("a", "first", run=lambda ctx: value), Make(world, "b", ("a",))]
    )
    with pytest.raises(ResultError, match="what step 'a' returned cannot be stored"):
        flow.run(store=store)
    assert world.made == ["first"]
    store.open()
    assert store.load("w")["first"].state == "done"


def test_a_result_that_contains_itself(store):
    loop: list[object] = []
    loop.append(loop)
    with pytest.raises(ResultError, match="cannot be stored"):
        Workflow("w", [step("a", run=lambda ctx: loop)]).run(store=store)


def test_a_result_over_one_mebibyte(store):
    fits, over = "x" * (1024 * 1024 - 2), "x" * (1024 * 1024 - 1)
    assert Workflow("w", [step("a", run=lambda ctx: fits)]).run(store=store).result("a") == fits
    with pytest.raises(ResultError, match=r"1,048,577 bytes, and at most 1,048,576"):
        Workflow("w", [step("b", run=lambda ctx: over)]).run(store=store)


def leaks(ctx):
    ctx.secret("vault:db", "correct horse battery")
    return {"url": "postgres://me:correct horse battery@db"}


@pytest.mark.parametrize(
    ("run", "words"),
    [
        (lambda ctx: {"token": Secret("env:TOKEN", "abcdefgh")}, "Secret"),
        (leaks, "the value of secret 'vault:db'"),
        (lambda ctx: "-----BEGIN EC PRIVATE KEY-----\nabc", "a private key"),
        (lambda ctx: {"users": [{"client-key-data": "LS0t"}]}, "a private key"),
    ],
)
def test_a_secret_handed_to_the_store_is_refused_and_not_written(tmp_path, run, words):
    store = SQLiteStore(tmp_path / "s.db")
    with pytest.raises(SecretLeakError, match=words) as caught:
        Workflow("w", [step("a", run=run)]).run(store=store)
    assert caught.value.exit_code == 3
    files = b"".join(path.read_bytes() for path in tmp_path.iterdir())
    for value in (b"abcdefgh", b"correct horse battery", b"LS0t", b"BEGIN EC"):
        assert value not in files


def test_a_secret_in_an_error_is_struck_out(tmp_path):
    store = SQLiteStore(tmp_path / "s.db")

    def fails(ctx):
        ctx.secret("env:PW", "swordfish-99")
        raise OSError("login failed for swordfish-99")

    with pytest.raises(Exception, match="login failed"):
        Workflow("w", [step("a", run=fails)]).run(store=store)
    assert all(b"swordfish-99" not in path.read_bytes() for path in tmp_path.iterdir())
    store.open()
    assert "•••" in store.runs()[0].error


def test_a_secret_is_not_printed_and_not_pickled():
    import pickle

    secret = Secret("env:X", "hidden-value")
    assert "hidden" not in repr(secret)
    with pytest.raises(TypeError):
        pickle.dumps(secret)


def test_a_store_that_is_a_directory(tmp_path, world: World):
    with pytest.raises(StoreError, match="is a directory"):
        Workflow("w", [Make(world, "a")]).run(store=SQLiteStore(tmp_path))
    assert world.made == []


def test_a_store_that_is_a_device(world: World):
    with pytest.raises(StoreError, match="not a regular file"):
        Workflow("w", [Make(world, "a")]).run(store=SQLiteStore("/dev/null"))
    assert world.made == []


def test_a_store_below_a_file(tmp_path, world: World):
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match="cannot be reached"):
        Workflow("w", [Make(world, "a")]).run(store=SQLiteStore(tmp_path / "file" / "s.db"))
    assert world.made == []


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_a_store_owned_by_someone_else(tmp_path, world: World):
    path = tmp_path / "s.db"
    flow = Workflow("w", [Make(world, "a")])
    flow.run(store=SQLiteStore(path))
    os.chown(path, 12345, -1)
    world.things.clear()
    world.made.clear()
    with pytest.raises(StoreError, match="belongs to user 12345"):
        flow.run(store=SQLiteStore(path))
    assert world.made == []


def test_a_disk_that_fills_up_while_the_store_is_made(tmp_path, world: World, monkeypatch):
    def full(*args):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "link", full)
    monkeypatch.setattr("pathlib.Path.rename", full)
    with pytest.raises(StoreError, match="No space left") as caught:
        Workflow("w", [Make(world, "a")]).run(store=SQLiteStore(tmp_path / "s.db"))
    assert caught.value.code == "store.full"
    assert world.made == []
    assert list(tmp_path.iterdir()) == []


def test_a_probe_that_does_not_answer_with_a_verdict(store, world: World):
    flow = Workflow("w", [Step("a", probe=lambda ctx: True, run=lambda ctx: world.made.append("a"))])
    with pytest.raises(WorkflowError, match="the probe of step 'a' returned True"):
        flow.run(store=store)
    assert world.made == []
