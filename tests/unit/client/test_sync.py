"""The synchronous clients have the methods, parameters and docstrings of the asynchronous ones."""

import inspect

import pytest

from holdfast.client import (
    AsyncBackgroundCommand,
    AsyncExecSession,
    AsyncFiles,
    AsyncPools,
    AsyncSandbox,
    AsyncSandboxes,
    AsyncTemplates,
    BackgroundCommand,
    Files,
    Pools,
    Sandbox,
    Sandboxes,
    Templates,
)
from holdfast.client.blocking import ExecSession

PAIRS = [
    (AsyncSandbox, Sandbox), (AsyncSandboxes, Sandboxes), (AsyncExecSession, ExecSession),
    (AsyncFiles, Files), (AsyncBackgroundCommand, BackgroundCommand),
    (AsyncTemplates, Templates), (AsyncPools, Pools),
]  # fmt: skip


def public_methods(cls):
    return {
        name: member
        for name, member in inspect.getmembers(cls, inspect.isfunction)
        if not name.startswith("_")
    }


def public_properties(cls):
    return {name for name, member in inspect.getmembers(cls) if isinstance(member, property)}


@pytest.mark.parametrize(("asynchronous", "synchronous"), PAIRS)
def test_methods_and_parameters_are_the_same(asynchronous, synchronous):
    expected, actual = public_methods(asynchronous), public_methods(synchronous)
    assert actual.keys() == expected.keys()
    assert public_properties(synchronous) >= public_properties(asynchronous)
    for name, method in expected.items():
        parameters = list(inspect.signature(method).parameters.values())
        assert list(inspect.signature(actual[name]).parameters.values()) == parameters, name
        assert not inspect.iscoroutinefunction(actual[name]), name


@pytest.mark.parametrize("cls", [cls for pair in PAIRS for cls in pair])
def test_every_public_member_is_documented(cls):
    members = public_methods(cls) | {name: getattr(cls, name) for name in public_properties(cls)}
    assert [name for name, member in members.items() if not inspect.getdoc(member)] == []


@pytest.mark.parametrize(
    ("method", "returns"),
    [
        (Sandbox.get, "SandboxView"),
        (Sandbox.logs, "Iterator[bytes]"),
        (Sandbox.session, "Iterator[ExecSession]"),
        (Sandboxes.temporary, "Iterator[Sandbox]"),
        (Pools.list, "Iterator[PoolView]"),
        (Templates.create, "TemplateView"),
        (Files.stream, "Iterator[bytes]"),
    ],
)
def test_return_annotation_names_synchronous_type(method, returns):
    assert inspect.signature(method).return_annotation == returns


def test_iteration_exists_on_both_sides():
    assert hasattr(AsyncSandboxes, "__aiter__")
    assert hasattr(Sandboxes, "__iter__")
    assert hasattr(AsyncExecSession, "__aiter__")
    assert hasattr(ExecSession, "__iter__")
