"""A helper removes what it left itself, and nothing of the same name that belongs to others."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from holdfast.containers import helpers
from holdfast.containers.labels import GATEWAY, HELPER
from holdfast.errors import EngineCallError, WaitTimeoutError

HELPER_OF_DEV = helpers.Helper(name="h", gateway="dev", image="", volume="v", path="/p", seconds=7.0)


@pytest.mark.parametrize(
    ("labels", "removed"),
    [
        ({GATEWAY: "dev", HELPER: "volume"}, ["id"]),
        ({GATEWAY: "dev-helper"}, []),
        ({GATEWAY: "dev"}, []),
        ({GATEWAY: "other", HELPER: "volume"}, []),
        ({}, []),
        (None, []),
    ],
)
def test_only_its_own_is_removed(monkeypatch, labels, removed):
    found = None if labels is None else SimpleNamespace(labels=labels, id="id")
    seen = []
    monkeypatch.setattr(helpers, "find_container", lambda *_: found)
    monkeypatch.setattr(helpers, "remove_container", lambda _, name: seen.append(name) or True)
    assert HELPER_OF_DEV.clear(None) is bool(removed)
    assert seen == removed


def ended_with(monkeypatch, *, in_time, code=0):
    """A helper whose container comes to an end like this; what is done with the engine is returned."""
    seen = []
    found = SimpleNamespace(labels={GATEWAY: "dev", HELPER: "volume"}, id="id", exit_code=code)
    monkeypatch.setattr(helpers, "find_container", lambda *_: found)
    monkeypatch.setattr(helpers, "create_container", lambda *_, **__: seen.append("made"))
    monkeypatch.setattr(helpers, "start_container", lambda *_: seen.append("started"))
    monkeypatch.setattr(helpers, "ends_within", lambda *_, within: seen.append(within) or in_time)
    monkeypatch.setattr(helpers, "container_logs", lambda *_: "two words\n")
    monkeypatch.setattr(helpers, "remove_container", lambda *_: seen.append("removed") or True)
    return seen


def test_it_has_the_time_it_was_given_and_is_taken_away_when_that_is_over(monkeypatch):
    seen = ended_with(monkeypatch, in_time=False)
    with pytest.raises(WaitTimeoutError, match=r"the volume v did not come to an end within 7 s"):
        HELPER_OF_DEV.run(None, "true")
    assert seen == ["removed", "made", "started", 7.0, "removed"]


@pytest.mark.parametrize("code", [0, 3])
def test_its_exit_code_counts(monkeypatch, code):
    ended_with(monkeypatch, in_time=True, code=code)
    if code == 0:
        assert HELPER_OF_DEV.run(None, "true") == "two words"
        return
    with pytest.raises(EngineCallError, match=r"failed \(exit code 3\): two words"):
        HELPER_OF_DEV.run(None, "true")


@pytest.mark.parametrize("there", [True, False])
def test_a_file_is_missing_only_where_the_helper_was_there_to_see_it(monkeypatch, there):
    ended_with(monkeypatch, in_time=True)
    monkeypatch.setattr(helpers, "read_file", lambda *_: None)
    if there:
        assert HELPER_OF_DEV.read(None, "record") is None
        return
    monkeypatch.setattr(helpers, "find_container", lambda *_: None)
    with pytest.raises(EngineCallError, match="was removed while it worked"):
        HELPER_OF_DEV.read(None, "record")
