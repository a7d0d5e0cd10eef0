"""Which label selectors are accepted, and that no selector takes long to reject."""

from __future__ import annotations

import re

import pytest

from holdfast.api import MAX_SELECTOR_LENGTH, SELECTOR_PATTERN


def is_accepted(selector):
    return re.search(SELECTOR_PATTERN, selector) is not None


@pytest.mark.parametrize(
    "selector",
    ["a", "!a", "a=", "a=b", "a==b", "a != b", " a = b , !c ", "a in (b)", "x.org/a notin (b, c)", "a =  ,b"],
)
def test_selectors_of_kubectl_are_accepted(selector):
    assert is_accepted(selector)


@pytest.mark.parametrize("selector", ["", ",", "a,,b", "a=b c", "a in b", "a in ()", "a>1", "a=b\n", "!"])
def test_other_text_is_rejected(selector):
    assert not is_accepted(selector)


@pytest.mark.timeout(20)
@pytest.mark.parametrize("operator", ["=", "==", "!=", " in (a", " notin (a,"])
def test_long_invalid_selector_is_rejected_without_backtracking(operator):
    """A pattern that backtracks would need centuries, and block the event loop of the API server."""
    attack = ",".join([f"a{operator}{' ' * 150}"] * 10) + "!"
    assert len(attack) < MAX_SELECTOR_LENGTH
    assert not is_accepted(attack)
