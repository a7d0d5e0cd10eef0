"""The request log: rates, counts, and no secrets."""

from __future__ import annotations

import json

import msgspec

from holdfast.testing.faults import RequestLog, rule


def filled(*clocks):
    log = RequestLog()
    for clock in clocks:
        log.add_record("GET", "/").clock = clock
    return log


def test_peak_rate_uses_fullest_window():
    assert filled().peak_rate() == 0
    assert filled(0.0, 5.0, 5.2, 5.9, 6.0, 9.0).peak_rate() == 3
    assert filled(0.0, 0.25, 0.5, 0.75).peak_rate(0.5) == 2 / 0.5
    log = filled(1.0, 1.1, 1.2, 8.0)
    assert log.peak_rate(since=2.0) == 1
    assert log.peak_rate(until=1.15) == 2
    assert log.peak_rate(where=lambda r: r.number != 2) == 2


def test_log_is_bounded_and_counters_continue():
    log = RequestLog(max_records=3)
    for _ in range(5):
        log.add_record("GET", "/")
    assert [r.number for r in log] == [3, 4, 5]
    log.clear()
    assert len(log) == 0
    assert log.add_record("GET", "/").number == 6


def test_summary_counts_lost_commits(proxy, call):
    with proxy.faults(rule("gateway-timeout", commit=True, methods="POST"), rule("gone", methods="GET")):
        call("POST", body={})
        call()
    summary = proxy.log.summary()
    assert summary.startswith("2 requests, 2 faults (")
    assert summary.endswith("1 lost commits")


def test_headers_and_bodies_are_not_kept(proxy, call):
    call("POST", body={"data": "c2VjcmV0"}, Authorization="Bearer tok3n")
    shown = b"".join(msgspec.json.encode(record) for record in proxy.log)
    assert b"c2VjcmV0" not in shown
    assert b"tok3n" not in shown
    assert json.loads(shown)["path"] == "/objects"
