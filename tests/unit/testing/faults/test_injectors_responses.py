"""Synthetic responses: statuses, Retry-After forms and malformed bodies."""

from __future__ import annotations

import json
from email.utils import parsedate_to_datetime

import pytest

from holdfast.testing.faults import FAULT_KINDS, RETRY_AFTER_FORMS, rule


@pytest.mark.parametrize(
    ("kind", "status", "reason"),
    [
        ("unauthorized", 401, "Unauthorized"),
        ("gone", 410, "Expired"),
        ("too-many-requests", 429, "TooManyRequests"),
        ("internal-error", 500, "InternalError"),
        ("leader-changed", 500, None),
        ("server-timeout", 500, "ServerTimeout"),
        ("unavailable", 503, "ServiceUnavailable"),
        ("gateway-timeout", 504, "Timeout"),
    ],
)
def test_errors_match_api_server_format(proxy, call, upstream, kind, status, reason):
    with proxy.faults(rule(kind)) as log:
        answer, body = call("POST", body={})
    content = json.loads(body)
    assert answer.status == content["code"] == status
    assert content.get("reason") == reason
    assert content["kind"] == "Status"
    assert upstream.objects == []
    assert [(r.status, r.committed) for r in log] == [(status, False)]


def test_leader_change_has_expected_message(proxy, call):
    with proxy.faults(rule("leader-changed")):
        assert json.loads(call()[1])["message"] == "etcdserver: leader changed"


@pytest.mark.parametrize(
    "kind", sorted(name for name, kind in FAULT_KINDS.items() if "commit" in kind.settings)
)
def test_commit_forwards_before_response(proxy, call, upstream, kind):
    with proxy.faults(rule(kind, commit=True, **({"seconds": 0} if kind.startswith("stall") else {}))) as log:
        if kind.startswith("stall"):
            with pytest.raises(OSError):
                call("POST", body={"name": "a"})
        elif kind != "enormous":
            call("POST", body={"name": "a"})
        else:
            with proxy.faults(rule(kind, commit=True, bytes=1000)):
                call("POST", body={"name": "a"})
    assert upstream.objects == [{"name": "a"}]
    assert [r.committed for r in log] == [True]


@pytest.mark.parametrize("form", RETRY_AFTER_FORMS)
@pytest.mark.parametrize("kind", ["too-many-requests", "unavailable"])
def test_every_retry_after_format(proxy, call, kind, form):
    with proxy.faults(rule(kind, retry_after=form)):
        answer, _ = call()
    sent = answer.getheader("Retry-After")
    if form == "absent":
        assert sent is None
    elif form.startswith("date:"):
        ahead = parsedate_to_datetime(sent) - parsedate_to_datetime(answer.getheader("Date"))
        assert ahead.total_seconds() == int(form.removeprefix("date:"))
    else:
        assert sent == form


def test_formats_are_drawn_from_list(proxy, call):
    with proxy.faults(rule("too-many-requests", retry_after=["1", "", "absent"])):
        drawn = {call()[0].getheader("Retry-After") for _ in range(40)}
    assert drawn == {"1", "", None}


def test_invalid_bodies(proxy, call):
    with proxy.faults(
        rule("html", nth=1),
        rule("empty", count=1, status=503),
        rule("invalid-utf8", count=1),
        rule("enormous", count=1, bytes=3_000_000),
        rule("wrong-content-type", count=1),
        rule("bad-gateway", count=1),
        rule("request-timeout", count=1),
    ):
        answers = [call() for _ in range(7)]
    html, empty, invalid, enormous, wrong, gateway, timeout = answers
    assert html[0].status == 200
    assert html[0].getheader("Content-Type").startswith("text/html")
    assert (empty[0].status, empty[1]) == (503, b"")
    with pytest.raises(UnicodeDecodeError):
        invalid[1].decode()
    assert 3_000_000 < len(enormous[1]) < 3_001_000
    assert wrong[0].getheader("Content-Type") == "text/plain"
    assert json.loads(wrong[1])["items"] == []
    assert (gateway[0].status, timeout[0].status) == (502, 408)


def test_huge_response_ends_when_client_disconnects(proxy, open_connection, call):
    with proxy.faults(rule("enormous", bytes=2**30, count=1)), open_connection() as caller:
        caller.connection.request("GET", "/objects")
        assert len(caller.connection.getresponse().read(1000)) == 1000
    assert call()[0].status == 200
