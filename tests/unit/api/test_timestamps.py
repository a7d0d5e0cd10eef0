"""Every moment that the API server lets through is some time, for sandboxes and claims alike."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given, strategies as st
from tests.support.sandbox_objects import NOW, condition_of, reconcile, sandbox

from holdfast.api.timestamps import parse_timestamp
from holdfast.sandbox.lifecycle import seconds_until_claim_expiry

START = datetime(2030, 1, 1, tzinfo=UTC)
FIRST, LAST = datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("2030-01-01T00:00:00Z", START),
        ("2030-01-01t00:00:00z", START),
        ("2030-01-01T00:00:00+24:30", START - timedelta(hours=24, minutes=30)),
        ("2030-01-01T00:00:00-99:99", START + timedelta(hours=99, minutes=99)),
        ("2030-01-01T00:00:00,5Z", START + timedelta(seconds=0.5)),
        ("2030-01-01T00:00:00.1234567890123Z", START + timedelta(microseconds=123456)),
        ("0000-02-29T00:00:00Z", FIRST),
        ("0001-01-01T00:00:00+10:00", FIRST),
        ("9999-12-31T23:59:59-10:00", LAST),
    ],
)
def test_server_timestamps_are_parsed(text, meant):
    assert parse_timestamp(text) == meant


@given(st.datetimes(timezones=st.just(UTC)), st.integers(-1439, 1439))
def test_python_timestamps_are_parsed(found, minutes):
    try:
        elsewhere = found + timedelta(minutes=minutes)
    except OverflowError:
        return
    sign = "-" if minutes < 0 else "+"
    offset = f"{sign}{abs(minutes) // 60:02}:{abs(minutes) % 60:02}"
    assert parse_timestamp(elsewhere.replace(tzinfo=None).isoformat() + offset) == found


@pytest.mark.parametrize("text", ["", "2030-01-01", "2030-01-01T00:00:00", "2030-02-30T00:00:00Z", "soon"])
def test_invalid_timestamps_are_rejected(text):
    with pytest.raises(ValueError, match=r"date-time|day"):
        parse_timestamp(text)


@pytest.mark.parametrize(
    "text", ["0000-01-01T00:00:00Z", "2020-01-01t00:00:00z", "2020-01-01T00:00:00+24:30"]
)
def test_unusual_past_timestamp_expires_sandboxes_and_claims(text):
    assert condition_of(reconcile(sandbox(shutdownTime=text)), "Ready") == ("False", "SandboxExpired")
    assert seconds_until_claim_expiry({"spec": {"lifecycle": {"shutdownTime": text}}}, NOW) == 0


def test_maximum_timestamp_is_in_the_future():
    text = "9999-12-31T23:59:59-99:00"
    assert reconcile(sandbox(shutdownTime=text)).requeue_after > 0
    assert seconds_until_claim_expiry({"spec": {"lifecycle": {"shutdownTime": text}}}, NOW) > 0
