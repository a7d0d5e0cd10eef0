"""Node names: stable, DNS-safe, different for different gateways."""

import re

import pytest
from hypothesis import given, strategies as st

from holdfast.errors import InvalidGatewayNameError
from holdfast.gateway.spec import MAX_NODE_NAME_LENGTH, check_name, node_name, object_name


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
def test_node_name_derives_from_gateway_name(name, expected):
    assert node_name(name) == expected


def test_long_name_is_truncated_with_hash():
    first, second = node_name("x" * 60 + "-one"), node_name("x" * 60 + "-two")
    assert first != second
    assert first.startswith("holdfast-xxxx")
    assert len(first) <= MAX_NODE_NAME_LENGTH


@given(st.text(max_size=300))
def test_every_name_gives_one_dns_label(name):
    label = node_name(name)
    assert re.fullmatch(r"[a-z0-9]([a-z0-9-]*[a-z0-9])?", label)
    assert len(label) <= MAX_NODE_NAME_LENGTH
    assert node_name(name) == label


@pytest.mark.parametrize(
    "name", ["", " ", "a b", "ä", "a/b", "../x", "-a", ".", "..", "a\n", "x" * 201, "a;b"]
)
def test_invalid_names_are_rejected(name):
    with pytest.raises(InvalidGatewayNameError) as caught:
        check_name(name)
    assert caught.value.exit_code == 2
    assert caught.value.hint


@pytest.mark.parametrize("name", ["dev", "Team_Blue", "a.b-c", "9", "___", "..Lab__-East-."])
def test_docker_style_names_are_accepted(name):
    assert check_name(name) == name
    assert object_name(name) == f"holdfast-{name}"
