"""DNS names and IP addresses are normalized; other texts are rejected."""

import ipaddress

import pytest
from hypothesis import given, strategies as st

from holdfast.errors import InvalidArgumentError
from holdfast.pki.server_names import (
    has_matching_name,
    normalize_server_name,
    normalize_server_names,
    parse_address,
)


@pytest.mark.parametrize(
    ("given_as", "stands_as"),
    [
        ("Gateway.Example.ORG.", "gateway.example.org"),
        (" localhost ", "localhost"),
        ("holdfast-Team_Blue", "holdfast-team_blue"),
        ("[2001:DB8::0:1]", "2001:db8::1"),
        ("127.0.0.1", "127.0.0.1"),
        ("*.example.org", "*.example.org"),
        ("xn--bcher-kva.example", "xn--bcher-kva.example"),
        ("a" * 63 + ".b", "a" * 63 + ".b"),
    ],
)
def test_names_are_normalized(given_as, stands_as):
    assert normalize_server_name(given_as) == stands_as
    assert normalize_server_name(stands_as) == stands_as


@pytest.mark.parametrize(
    "text",
    ["", ".", "*", "*.", "a..b", "-a", "a-", "a" * 64, ".".join(["abcdefgh"] * 29), "host:443", "a b", "a/b",
     "bücher.example", "256.1.1.1", "1.2.3", "fe80::1%eth0", "x.*.org", "a\x00b", "https://x"],
)  # fmt: skip
def test_invalid_names_are_rejected_by_name(text):
    with pytest.raises(InvalidArgumentError) as caught:
        normalize_server_name(text)
    assert repr(text) in caught.value.message


def test_duplicate_names_count_once():
    assert normalize_server_names(["B", "b.", "::1", "[0::1]", "a"]) == ("b", "::1", "a")


@given(st.ip_addresses())
def test_address_is_found_in_any_notation(found):
    assert parse_address(str(found)) == found
    assert normalize_server_name(found.exploded) == str(found)
    assert ipaddress.ip_address(normalize_server_name(f"[{found}]")) == found


@given(st.text(max_size=40))
def test_any_text_is_accepted_or_rejected(text):
    try:
        name = normalize_server_name(text)
    except InvalidArgumentError:
        return
    assert has_matching_name([name], name)
    assert name.isascii()


def test_wildcard_covers_no_address():
    assert not has_matching_name(["*.0.0.1"], "127.0.0.1")
