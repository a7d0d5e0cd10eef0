"""The comparison of two clocks allows for the time that the request took."""

import datetime as dt

import pytest

from holdfast.gateway.cluster import clock_skew_seconds

NOW = dt.datetime(2026, 11, 16, 12, tzinfo=dt.UTC)


@pytest.mark.parametrize(
    ("remote_time", "seconds"),
    [
        ("Mon, 16 Nov 2026 12:00:00 GMT", 0),
        ("Mon, 16 Nov 2026 12:00:01 GMT", 0),
        ("Mon, 16 Nov 2026 12:10:02 GMT", 600),
        ("Mon, 16 Nov 2026 11:50:00 GMT", -600),
        ("2026-11-16T12:10:02.123456789Z", 600),
        ("2026-11-16T13:10:02.123456789+01:00", 600),
        ("", 0),
        ("yesterday, more or less", 0),
    ],
)
def test_clock_comparison_allows_for_round_trip(remote_time, seconds):
    sent_at = NOW.timestamp()
    assert clock_skew_seconds(remote_time, sent_at, sent_at + 2) == pytest.approx(seconds, abs=0.2)
