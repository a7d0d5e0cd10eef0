"""A helper removes what it left itself, and nothing of the same name that belongs to others."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from holdfast.containers import helpers
from holdfast.containers.labels import GATEWAY, HELPER

HELPER_OF_DEV = helpers.Helper(name="h", gateway="dev", image="", volume="v", path="/p")


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
