"""`help()` of the public classes shows arguments and docstrings; a misspelt argument is named."""

import inspect
import pydoc
import re

import pytest

from holdfast import Gateway, Policy, Sandbox, Workflow, client, resilient, retry
from holdfast.client import ExecResult, Sandboxes, sync
from holdfast.errors import UsageError
from holdfast.gateway import AsyncGateway

PAIRS = [
    (getattr(client, f"Async{name}"), getattr(client, name, None) or getattr(sync, name))
    for name in (each.removeprefix("Async") for each in client.__all__ if each.startswith("Async"))
]
PAIRS.append((AsyncGateway, Gateway))
CLASSES = [Policy, Workflow, *(cls for pair in PAIRS for cls in pair)]
METHODS = [
    pytest.param(cls, name, id=f"{cls.__name__}.{name}")
    for cls in CLASSES
    for name, _ in inspect.getmembers(cls, inspect.isfunction)
    if not name.startswith("_")
]
INTERNAL = re.compile(r"_delegate|\bcall\(\)|<function|<lambda>|<locals>|\bNever\b|portal")


def help_of(thing):
    return pydoc.plain(pydoc.render_doc(thing))


@pytest.mark.parametrize(("cls", "name"), METHODS)
def test_help_shows_arguments_result_and_docstring(cls, name):
    method = getattr(cls, name)
    text, signature = help_of(method), inspect.signature(method)
    line = next(line for line in text.splitlines() if re.match(rf"(async )?{name}[(]", line))
    for parameter in signature.parameters.values():
        assert re.search(rf"(?<![\w]){parameter.name}\b", line), line
    assert signature.return_annotation is not signature.empty
    assert "Async" not in line or cls.__name__.startswith("Async")
    assert inspect.getdoc(method).splitlines()[0] in text
    assert not INTERNAL.search(text), text


@pytest.mark.parametrize(("asynchronous", "synchronous"), PAIRS)
def test_synchronous_class_has_the_same_members_and_signatures(asynchronous, synchronous):
    members = [
        {name for name, _ in inspect.getmembers(cls) if not name.startswith("_")}
        for cls in (asynchronous, synchronous)
    ]
    # The attributes `name` and `is_new` of the asynchronous class are properties of the other.
    assert members[0] <= members[1] <= members[0] | {"name", "is_new"}
    for name in members[0]:
        ours, theirs = getattr(synchronous, name), getattr(asynchronous, name)
        if inspect.isfunction(theirs):
            signature, expected = inspect.signature(ours), inspect.signature(theirs)
            assert list(signature.parameters.values()) == list(expected.parameters.values()), name
            returns = str(expected.return_annotation).replace("Async", "")
            assert str(signature.return_annotation) == returns, name
            assert not inspect.iscoroutinefunction(ours)
            assert not inspect.isasyncgenfunction(ours)


@pytest.mark.parametrize("thing", [*CLASSES, ExecResult, retry, resilient], ids=lambda thing: thing.__name__)
def test_help_begins_with_a_description(thing):
    text = help_of(thing)
    first = inspect.getdoc(thing).splitlines()[0]
    assert first in text
    assert first.endswith(".")


@pytest.mark.parametrize(
    ("cls", "name"),
    [each for each in METHODS if each.values[0] in (Gateway, Sandbox, Sandboxes) and each.values[1] != "all"],
)
def test_misspelt_argument_is_named_before_anything_is_sent(cls, name, tmp_path, monkeypatch):
    monkeypatch.setenv("HOLDFAST_HOME", str(tmp_path))
    gateway = Gateway("dev")
    subject = {Gateway: gateway, Sandbox: gateway.sandbox("box"), Sandboxes: gateway.sandboxes()}[cls]
    required = [
        "box"
        for parameter in inspect.signature(getattr(subject, name)).parameters.values()
        if parameter.default is parameter.empty and parameter.kind is parameter.POSITIONAL_OR_KEYWORD
    ]

    def call():
        result = getattr(subject, name)(*required, misspelt=1)
        result.__enter__()  # of a context manager

    with pytest.raises((TypeError, UsageError)) as caught:
        call()
    assert "misspelt" in str(caught.value)
    assert not INTERNAL.search(str(caught.value))


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: retry(attempts=3), ["attempts", "@retry(Policy(attempts=...))"]),
        (lambda: retry(Policy(), operatoin="x"), ["operatoin"]),
        (lambda: Policy(attempt=3), ["attempt"]),
        (lambda: Policy(attempts="3"), ["attempts"]),
        (lambda: retry(3), ["policy", "3"]),
        (lambda: retry("x"), ["policy", "'x'"]),
        (lambda: Gateway(listner=print), ["listner"]),
    ],
    ids=["attempts", "operation", "attempt", "text", "number", "word", "listener"],
)
def test_misuse_of_constructors_is_named(call, words):
    with pytest.raises((TypeError, UsageError)) as caught:
        call()
    for word in words:
        assert word in str(caught.value)
    assert not INTERNAL.search(str(caught.value))
