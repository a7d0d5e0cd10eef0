"""Secrets stay out of the store, in every encoding and whenever they are registered."""

from __future__ import annotations

import base64
import json
import threading
from concurrent.futures import ThreadPoolExecutor, wait
from typing import TYPE_CHECKING
from urllib.parse import quote, quote_plus

import msgspec
import pytest

from holdfast.errors import SecretLeakError
from holdfast.events import RetryScheduled
from holdfast.retry import Policy, constant, testing_mode
from holdfast.workflow import MemoryStore, Secret, SQLiteStore, Step, Workflow, absent, done
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


@pytest.mark.parametrize("values", [(VALUE, f"{VALUE}-2"), (f"{VALUE}-2", VALUE)])
def test_secret_that_contains_another_is_masked_completely(values):
    redactor = SecretRedactor()
    for value in values:
        redactor.add(Secret("env:PW", value))
    assert redactor.redact(f"a {VALUE}-2 b {VALUE}") == "a ••• b •••"


def test_secret_registered_while_result_is_stored_is_found():
    checked, go = threading.Event(), threading.Event()

    class Slow(dict):
        def __setitem__(self, key, value):
            checked.set()
            assert go.wait(10)
            super().__setitem__(key, value)

    redactor = SecretRedactor(Slow())
    with ThreadPoolExecutor(2) as pool:
        storing = pool.submit(redactor.store_result, "a", msgspec.Raw(f'"{VALUE}"'.encode()))
        assert checked.wait(10)
        adding = pool.submit(redactor.add, Secret("env:PW", VALUE))
        wait([adding], 0.2)  # it waits for the result, or it searches the results too early
        go.set()
        storing.result(10)
        with pytest.raises(SecretLeakError, match="the result of step 'a'"):
            adding.result(10)
    assert redactor.leaked_steps == {"a"}


def test_secret_in_recorded_result_of_skipped_step_is_redacted(tmp_path):
    """The secret is registered before the step with the recorded result is skipped."""
    path, secrets = tmp_path / "s.db", {}
    steps = [
        Step(
            "a", repeat="always", run=lambda ctx: [ctx.secret("env:PW", value) for value in secrets] and None
        ),
        Step("b", needs=["a"], run=lambda ctx: {"token": VALUE}, probe=lambda ctx: state[0]),
    ]
    state = [absent()]
    Workflow("w", steps).run(store=SQLiteStore(path))
    assert in_files(tmp_path) == ["s.db"]
    state[0], secrets[VALUE] = done(), 1
    with pytest.raises(SecretLeakError, match="step 'b' returned the value"):
        Workflow("w", steps).run(store=SQLiteStore(path))
    assert in_files(tmp_path) == []
