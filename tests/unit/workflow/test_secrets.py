"""Secrets stay out of the store, in every encoding and whenever they are registered."""

from __future__ import annotations

import base64
import json
from typing import TYPE_CHECKING
from urllib.parse import quote, quote_plus

import pytest

from holdfast.errors import SecretLeakError
from holdfast.events import RetryScheduled
from holdfast.retry import Policy, constant, testing_mode
from holdfast.workflow import MemoryStore, Secret, SQLiteStore, Step, Workflow
from holdfast.workflow.secrets import SecretRedactor

if TYPE_CHECKING:
    from .conftest import World

VALUE = "hunter2-secret"


def in_files(place):
    return [path.name for path in place.iterdir() if VALUE.encode() in path.read_bytes()]


@pytest.mark.parametrize("learned", ["input", "context"])
def test_secret_in_earlier_result_is_redacted(tmp_path, learned):
    made = []

    def first(ctx):
        made.append("a")
        return {"url": f"postgres://me:{VALUE}@db"}

    def second(ctx):
        if learned == "context":
            ctx.secret("env:PW", VALUE)
        made.append("b")

    inputs = {"pw": Secret("env:PW", VALUE)} if learned == "input" else {}
    flow = Workflow(
        "w",
        [
            Step("a", repeat="at-least-once", run=first),
            Step("b", needs=["a"], repeat="safe", inputs=inputs, run=second),
        ],
    )
    store = SQLiteStore(tmp_path / "s.db")
    with pytest.raises(SecretLeakError, match="the result of step 'a' contains the value") as caught:
        flow.run(store=store)
    assert "'env:PW'" in str(caught.value)
    assert caught.value.hint
    assert made == ["a"]
    assert in_files(tmp_path) == []
    store.open()
    assert store.load("w")["a"].state == "done"
    store.close()
    flow.run(store=store)
    assert made == ["a", "b"], "what is done stays done"
    assert in_files(tmp_path) == []


def test_secret_in_result_of_earlier_run_is_redacted(tmp_path):
    path, inputs = tmp_path / "s.db", {}
    flow = Workflow(
        "w",
        [
            Step("a", repeat="safe", run=lambda ctx: {"token": VALUE, "padding": "x" * 9_000}),
            Step("b", needs=["a"], repeat="safe", inputs=lambda ctx: inputs, run=lambda ctx: None),
        ],
    )
    flow.run(store=SQLiteStore(path))
    assert in_files(tmp_path) == ["s.db"]
    inputs["pw"] = Secret("env:PW", VALUE)
    with pytest.raises(SecretLeakError):
        flow.run(store=SQLiteStore(path))
    assert in_files(tmp_path) == []


def test_retry_reasons_are_redacted(tmp_path, world: World):
    def run(ctx):
        ctx.secret("env:PW", VALUE)
        if ctx.attempt == 1:
            raise ConnectionError(f"bad {VALUE}")

    policy = Policy(attempts=2, backoff=constant(1), describe=lambda error: f"because {error}")
    with testing_mode():
        Workflow("w", [Step("a", repeat="safe", run=run, policy=policy)]).run(
            store=SQLiteStore(tmp_path / "s.db"), bus=world.bus
        )
    assert [event.reason for event in world.of(RetryScheduled)] == ["because bad •••"]
    assert in_files(tmp_path) == []


PASSWORD = 'p@ss w/"rd~+é'


@pytest.mark.parametrize(
    "spelled",
    [
        PASSWORD,
        quote(PASSWORD),
        quote(PASSWORD, safe=""),
        quote_plus(PASSWORD),
        json.dumps(PASSWORD)[1:-1],
        base64.b64encode(PASSWORD.encode()).decode(),
        base64.urlsafe_b64encode(PASSWORD.encode()).decode().rstrip("="),
    ],
)
def test_encoded_secrets_are_rejected(spelled):
    step = Step(
        "a",
        repeat="safe",
        inputs={"pw": Secret("env:PW", PASSWORD)},
        run=lambda ctx: {"url": f"https://me:{spelled}@host/"},
    )
    with pytest.raises(SecretLeakError, match="'env:PW'"):
        Workflow("w", [step]).run(store=MemoryStore())


def test_redaction_of_history_runs_once_per_secret():
    """Thousands of steps with the same secret among their inputs must not read all results each time."""
    looked = []

    class Kept(dict):
        def items(self):
            looked.append(1)
            return super().items()

    vault = SecretRedactor(Kept(a=b'"x"'))
    for _ in range(100):
        vault.add(Secret("env:PW", VALUE))
    assert looked == [1]
