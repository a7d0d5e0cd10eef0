"""Retry-After: every form that servers send, and none that makes the reader fall over."""

import time
from email.utils import formatdate

import pytest
from hypothesis import example, given, strategies as st

from holdfast.retry import parse_retry_after


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        ("1", 1),
        (" 7 ", 7),
        ("120", 120),
        ("1.5", 1.5),
        (b"3", 3),
        (5, 5),
        (2.5, 2.5),
        ("999999999999", 999999999999),
    ],
)
def test_seconds(value, seconds):
    assert parse_retry_after(value) == seconds


@pytest.mark.parametrize(
    "value",
    [
        "0",
        "-1",
        "",
        "  ",
        None,
        "soon",
        "1s",
        "1,5",
        "NaN",
        "inf",
        "1e3",
        "٣",
        True,
        object(),
        [],
        b"\xff\xfe",
        "9" * 5000,
    ],
)
def test_zero_negative_empty_and_invalid_values_are_ignored(value):
    assert parse_retry_after(value) is None


def test_date_is_relative_to_response_date():
    sent = 1_000_000_000
    assert parse_retry_after(formatdate(sent + 12, usegmt=True), formatdate(sent, usegmt=True)) == 12


def test_past_date_is_ignored():
    sent = 1_000_000_000
    assert parse_retry_after(formatdate(sent - 12, usegmt=True), formatdate(sent, usegmt=True)) is None


@pytest.mark.parametrize("date", [None, "", "rubbish", b"\xff"])
def test_local_clock_is_used_without_response_date(date):
    asked = parse_retry_after(formatdate(time.time() + 20, usegmt=True), date)
    assert asked is not None
    assert 17 < asked <= 20


@pytest.mark.parametrize(
    "form", ["Sun, 09 Sep 2001 01:46:52 GMT", "Sunday, 09-Sep-01 01:46:52 GMT", "Sun Sep  9 01:46:52 2001"]
)
def test_all_http_date_formats(form):
    assert parse_retry_after(form, formatdate(1_000_000_000, usegmt=True)) == 12


@given(
    st.one_of(st.binary(max_size=200), st.text(max_size=200), st.none(), st.integers(), st.floats()),
    st.binary(),
)
@example("Mon, 99 Foo 99999 99:99:99 GMT", b"")
@example("Sun, 31 Dec 9999 23:59:59 +9999", b"")
@example("\0", b"")
def test_any_bytes_are_accepted(value, date):
    asked = parse_retry_after(value, date)
    assert asked is None or asked > 0
