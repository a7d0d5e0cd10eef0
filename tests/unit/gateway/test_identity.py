"""Node names: stable, DNS-safe, different for different gateways."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.errors import IllegalNameError
from holdfast.gateway.identity import LONGEST_NODE_NAME, check_name, node_name, object_name


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("dev", "holdfast-dev"),
        ("Team_Blue", "holdfast-team-blue"),
        ("..Lab__-East-.", "holdfast-lab-east"),
        ("___", "holdfast-gateway"),
        ("a.b", "holdfast-a-b"),
        ("a" * 54, "holdfast-" + "a" * 54),
    ],
)
def test_a_node_is_named_after_its_gateway(name, expected):
    assert node_name(name) == expected


def test_a_long_name_keeps_its_head_and_ends_in_a_hash():
    first, second = node_name("x" * 60 + "-one"), node_name("x" * 60 + "-two")
    assert first != second
    assert first.startswith("holdfast-xxxx")
    assert len(first) <= LONGEST_NODE_NAME


@given(st.text(max_size=300))
def test_every_name_gives_one_dns_label(name):
    label = node_name(name)
    assert re.fullmatch(r"[a-z0-9]([a-z0-9-]*[a-z0-9])?", label)
    assert len(label) <= LONGEST_NODE_NAME
    assert node_name(name) == label


@pytest.mark.parametrize(
    "name", ["", " ", "a b", "ä", "a/b", "../x", "-a", ".", "..", "a\n", "x" * 201, "a;b"]
)
def test_what_cannot_be_a_name_is_refused(name):
    with pytest.raises(IllegalNameError) as caught:
        check_name(name)
    assert caught.value.exit_code == 2
    assert caught.value.hint


@pytest.mark.parametrize("name", ["dev", "Team_Blue", "a.b-c", "9", "___", "..Lab__-East-."])
def test_docker_friendly_names_are_taken(name):
    assert check_name(name) == name
    assert object_name(name) == f"holdfast-{name}"
