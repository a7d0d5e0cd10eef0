"""Names and addresses have one spelling, and what is neither is refused."""

import ipaddress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.errors import ArgumentError
from holdfast.pki.names import address, check_server_name, covers, server_names


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
def test_one_spelling(given_as, stands_as):
    assert check_server_name(given_as) == stands_as
    assert check_server_name(stands_as) == stands_as


@pytest.mark.parametrize(
    "text",
    ["", ".", "*", "*.", "a..b", "-a", "a-", "a" * 64, ".".join(["abcdefgh"] * 29), "host:443", "a b", "a/b",
     "bücher.example", "256.1.1.1", "1.2.3", "fe80::1%eth0", "x.*.org", "a\x00b", "https://x"],
)  # fmt: skip
def test_what_is_no_name_is_refused_by_name(text):
    with pytest.raises(ArgumentError) as caught:
        check_server_name(text)
    assert repr(text) in caught.value.message


def test_each_name_counts_once():
    assert server_names(["B", "b.", "::1", "[0::1]", "a"]) == ("b", "::1", "a")


@given(st.ip_addresses())
def test_an_address_is_found_in_any_spelling(found):
    assert address(str(found)) == found
    assert check_server_name(found.exploded) == str(found)
    assert ipaddress.ip_address(check_server_name(f"[{found}]")) == found


@given(st.text(max_size=40))
def test_no_text_is_more_than_refused(text):
    try:
        name = check_server_name(text)
    except ArgumentError:
        return
    assert covers([name], name)
    assert name.isascii()


def test_a_wildcard_covers_no_address():
    assert not covers(["*.0.0.1"], "127.0.0.1")
