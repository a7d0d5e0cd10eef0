"""Faults inside a watch: events of the server first, then the fault."""

from __future__ import annotations

import http.client
import json

import pytest
from tests.support.eventually import eventually

from holdfast.testing.faults import rule

WATCH = {"path": "/watch?watch=true"}


def events(body):
    return [json.loads(line) for line in body.splitlines()]


def test_watch_passes_event_by_event(proxy, open_connection):
    with open_connection() as caller:
        caller.connection.request("GET", "/watch?watch=true&forever")
        answer = caller.connection.getresponse()
        assert [json.loads(answer.readline())["object"]["number"] for _ in range(5)] == [0, 1, 2, 3, 4]


def test_watch_of_disconnected_client_is_closed_upstream(proxy, open_connection, upstream):
    with open_connection() as caller:
        caller.connection.request("GET", "/watch?watch=true&forever")
        caller.connection.getresponse().readline()
    assert eventually(lambda: upstream.watchers) == ["left"]


@pytest.mark.parametrize("number", [0, 1, 3])
@pytest.mark.parametrize(("kind", "code"), [("event-gone", 410), ("event-too-many-requests", 429)])
def test_error_event_ends_stream(proxy, call, kind, code, number):
    with proxy.faults(rule(kind, events=number)):
        answer, body = call(**WATCH)
    *before, last = events(body)
    assert answer.status == 200
    assert [event["object"]["number"] for event in before] == list(range(number))
    assert (last["type"], last["object"]["code"]) == ("ERROR", code)


def test_too_many_requests_event_has_retry_seconds(proxy, call):
    with proxy.faults(rule("event-too-many-requests", retry_after="2")):
        _, body = call(**WATCH)
    assert events(body)[-1]["object"]["details"] == {"retryAfterSeconds": 2}


def test_malformed_line(proxy, call):
    with proxy.faults(rule("event-garbage", events=1)):
        _, body = call(**WATCH)
    with pytest.raises(ValueError):
        events(body)


def test_early_end_is_clean(proxy, call):
    with proxy.faults(rule("end-stream", events=2)):
        assert len(events(call(**WATCH)[1])) == 2


def test_dropped_stream_is_not_clean(proxy, call):
    errors = (http.client.IncompleteRead, ConnectionResetError)
    with proxy.faults(rule("drop-stream", events=2)), pytest.raises(errors):
        call(**WATCH)


def test_stream_faults_apply_to_watches_only(proxy, call):
    with proxy.faults(rule("event-gone", count=1)) as log:
        assert call()[0].status == 200
        call(**WATCH)
    assert [r.fault for r in log] == [None, "event-gone"]


def test_fault_storm_ends_after_count(proxy, call):
    with proxy.faults(rule("event-gone", count=3)):
        codes = [events(call(**WATCH)[1])[-1]["type"] for _ in range(5)]
    assert codes == ["ERROR"] * 3 + ["ADDED"] * 2
