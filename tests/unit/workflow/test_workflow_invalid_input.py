"""Invalid workflows and arguments raise one clear error before any effect."""

from __future__ import annotations

import errno
import math
import os

import pytest

from holdfast.errors import SecretLeakError, StepResultError, StoreError, WorkflowError
from holdfast.workflow import Secret, SQLiteStore, Step, Workflow, absent

from .conftest import Make, World


def step(name, *needs, run=lambda ctx: None, **more):
    return Step(name, needs=needs, run=run, repeat="safe", **more)


def test_cycle_is_shown_as_path():
    with pytest.raises(WorkflowError, match=r"cycle: .*→") as caught:
        Workflow("w", [step("a", "c"), step("b", "a"), step("c", "b"), step("d", "a")])
    path = str(caught.value).split(": ")[1].split(" → ")
    assert path[0] == path[-1]
    assert set(path) == {"a", "b", "c"}
    assert caught.value.exit_code == 2


def test_step_that_needs_itself():
    with pytest.raises(WorkflowError, match="a → a"):
        Workflow("w", [step("a", "a")])


def test_unknown_dependency_lists_known_steps():
    with pytest.raises(WorkflowError, match="step 'b' needs 'typo'") as caught:
        Workflow("w", [step("a"), step("b", "typo")])
    assert "'a', 'b'" in caught.value.hint


@pytest.mark.parametrize("forgets", ["typo", ["a"], 3])
def test_unknown_forgotten_step_is_rejected(forgets):
    with pytest.raises(WorkflowError, match=r"step 'b' forgets .*, which does not exist"):
        Workflow("w", [step("a"), step("b", forgets=forgets)])


def test_duplicate_step_name():
    with pytest.raises(WorkflowError, match="two steps are called 'a'"):
        Workflow("w", [step("a"), step("a")])


@pytest.mark.parametrize("name", ["", "  ", "a\nb", "x" * 300, None, 3])
def test_invalid_step_names(name):
    bad = step("x")
    bad.__dict__["name"] = name
    with pytest.raises(WorkflowError, match="no valid name"):
        Workflow("w", [bad])


def test_class_instead_of_step():
    with pytest.raises(WorkflowError, match="is not a Step"):
        Workflow("w", [Make])  # type: ignore[list-item]


def test_step_without_run():
    with pytest.raises(WorkflowError, match="has no `run`"):
        Workflow("w", [Step("a", probe=lambda ctx: absent())])


def test_step_without_probe_or_repeat():
    with pytest.raises(WorkflowError, match="neither a probe nor `repeat`"):
        Workflow("w", [Step("a", run=lambda ctx: None)])


def test_invalid_repeat_value():
    with pytest.raises(WorkflowError, match="must be one of"):
        Workflow("w", [Step("a", run=lambda ctx: None, repeat="never")])  # type: ignore[arg-type]


def test_needs_given_as_string():
    with pytest.raises(WorkflowError, match="list or tuple of names"):
        Workflow("w", [Step("a", run=lambda ctx: None, repeat="safe", needs="abc")])


async def asynchronous(ctx):
    return 1


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Workflow(5), "5 is not a valid workflow name"),
        (lambda: Workflow("w", None), "must be a list of steps, not None"),
        (lambda: Workflow("w", workers="two"), "`workers` must be at least 1, not 'two'"),
        (lambda: Workflow("w", [step("a", ["x"])]), "`needs` of step 'a' must contain names"),
        (lambda: Workflow("w", [step("a", reads=[None])]), "`reads` of step 'a' must contain names"),
        (lambda: Workflow("w", [step("a", run=5)]), "`run` of step 'a' must be a function, not 5"),
        (lambda: Workflow("w", [step("a", probe="x")]), "`probe` of step 'a' must be a function"),
        (lambda: Workflow("w", [step("a", policy="x")]), "must be a holdfast.retry.Policy"),
        (lambda: Workflow("w", [step("a", run=asynchronous)]), "is a coroutine function"),
    ],
)
def test_arguments_of_wrong_type(make, words):
    with pytest.raises(WorkflowError, match=words):
        make()


def test_workflow_without_steps_or_name():
    with pytest.raises(WorkflowError, match="no steps"):
        Workflow("w").run()
    with pytest.raises(WorkflowError, match="is not a valid workflow name"):
        Workflow("")


def test_step_declared_without_result_is_read_by_dependant():
    def silent(ctx) -> None:
        return None

    with pytest.raises(WorkflowError, match="'a' returns nothing, but 'b' reads its result"):
        Workflow("w", [step("a", run=silent), Step("b", reads=["a"], run=lambda ctx: None, repeat="safe")])


def test_step_returning_none_is_read_by_dependant(store, world: World):
    flow = Workflow(
        "w",
        [step("a"), Step("b", reads=["a"], run=lambda ctx: world.made.append("b"), repeat="safe")],
    )
    with pytest.raises(StepResultError, match="'a' returned nothing, but 'b' reads its result") as caught:
        flow.run(store=store)
    assert caught.value.hint == "Return a value from 'a', or remove it from `reads`."
    assert world.made == []


def test_read_of_result_not_listed_in_needs(store):
    flow = Workflow("w", [step("a"), step("b", run=lambda ctx: ctx.result("a"))], workers=1)
    with pytest.raises(WorkflowError, match="which it does not need") as caught:
        flow.run(store=store)
    assert "needs" in caught.value.hint


@pytest.mark.parametrize(
    "value", [object(), {1, 2}, b"bytes", math.nan, {"x": object()}, "\ud800", {("a",): 1}]
)
def test_unserializable_result(store, world: World, value):
    flow = Workflow(
        "w", [Make(world, "first"), step("a", "first", run=lambda ctx: value), Make(world, "b", ("a",))]
    )
    with pytest.raises(StepResultError, match="step 'a' returned a value that cannot be stored"):
        flow.run(store=store)
    assert world.made == ["first"]
    store.open()
    assert store.load("w")["first"].state == "done"


def test_self_referencing_result(store):
    loop: list[object] = []
    loop.append(loop)
    with pytest.raises(StepResultError, match="cannot be stored"):
        Workflow("w", [step("a", run=lambda ctx: loop)]).run(store=store)


def test_result_over_one_mebibyte(store):
    fits, over = "x" * (1024 * 1024 - 2), "x" * (1024 * 1024 - 1)
    assert Workflow("w", [step("a", run=lambda ctx: fits)]).run(store=store).result("a") == fits
    with pytest.raises(StepResultError, match=r"1,048,577 bytes; at most 1,048,576"):
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
def test_secret_in_result_is_rejected_and_not_written(tmp_path, run, words):
    store = SQLiteStore(tmp_path / "s.db")
    with pytest.raises(SecretLeakError, match=words) as caught:
        Workflow("w", [step("a", run=run)]).run(store=store)
    assert caught.value.exit_code == 3
    files = b"".join(path.read_bytes() for path in tmp_path.iterdir())
    for value in (b"abcdefgh", b"correct horse battery", b"LS0t", b"BEGIN EC"):
        assert value not in files


def test_secret_in_error_is_redacted(tmp_path):
    store = SQLiteStore(tmp_path / "s.db")

    def fails(ctx):
        ctx.secret("env:PW", "swordfish-99")
        raise OSError("login failed for swordfish-99")

    with pytest.raises(Exception, match="login failed"):
        Workflow("w", [step("a", run=fails)]).run(store=store)
    assert all(b"swordfish-99" not in path.read_bytes() for path in tmp_path.iterdir())
    store.open()
    assert "•••" in store.runs()[0].error


def test_secret_is_not_printed_or_pickled():
    import pickle

    secret = Secret("env:X", "hidden-value")
    assert "hidden" not in repr(secret)
    with pytest.raises(TypeError):
        pickle.dumps(secret)


def test_store_path_is_a_directory(tmp_path, world: World):
    with pytest.raises(StoreError, match="is a directory"):
        Workflow("w", [Make(world, "a")]).run(store=SQLiteStore(tmp_path))
    assert world.made == []


def test_store_path_is_a_device(world: World):
    with pytest.raises(StoreError, match="not a regular file"):
        Workflow("w", [Make(world, "a")]).run(store=SQLiteStore("/dev/null"))
    assert world.made == []


def test_store_path_below_a_file(tmp_path, world: World):
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match="cannot be opened"):
        Workflow("w", [Make(world, "a")]).run(store=SQLiteStore(tmp_path / "file" / "s.db"))
    assert world.made == []


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_store_owned_by_other_user(tmp_path, world: World):
    path = tmp_path / "s.db"
    flow = Workflow("w", [Make(world, "a")])
    flow.run(store=SQLiteStore(path))
    os.chown(path, 12345, -1)
    world.things.clear()
    world.made.clear()
    with pytest.raises(StoreError, match="belongs to user 12345"):
        flow.run(store=SQLiteStore(path))
    assert world.made == []


def test_full_disk_while_creating_store(tmp_path, world: World, monkeypatch):
    def full(*args):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "link", full)
    monkeypatch.setattr("pathlib.Path.rename", full)
    with pytest.raises(StoreError, match="No space left") as caught:
        Workflow("w", [Make(world, "a")]).run(store=SQLiteStore(tmp_path / "s.db"))
    assert caught.value.code == "store-full"
    assert world.made == []
    assert list(tmp_path.iterdir()) == []


def test_probe_returns_wrong_type(store, world: World):
    flow = Workflow("w", [Step("a", probe=lambda ctx: True, run=lambda ctx: world.made.append("a"))])
    with pytest.raises(WorkflowError, match="the probe of step 'a' returned True"):
        flow.run(store=store)
    assert world.made == []
