"""Outcome classes: by status where there is one, else by the cause chain."""

import errno
import http.client
import json
import socket
import ssl

import aiohttp
import pytest
import urllib3
from hypothesis import given, settings, strategies as st
from kubernetes.client import ApiException

from holdfast.kube import FailureClass, WriteOutcome, classify, describe, write_outcome
from holdfast.kube.failures import is_already_exists, parse_status, record_write_outcome, retry_after_seconds


def failure(status, reason="", message="", headers=None, body=None):
    error = ApiException(status=status, reason="x")
    error.body = (
        json.dumps({"kind": "Status", "reason": reason, "message": message}) if body is None else body
    )
    error.headers = headers
    return error


def tls_error(library, reason):
    error = ssl.SSLError(1, f"[{library}: {reason}]")
    error.library, error.reason = library, reason
    return error


@pytest.mark.parametrize(
    ("error", "outcome"),
    [
        (failure(429, "TooManyRequests"), FailureClass.REJECTED),
        (failure(429, body="<html>"), FailureClass.REJECTED),
        (failure(503, "ServiceUnavailable"), FailureClass.REJECTED),
        (failure(503, body="<html>no upstream</html>"), FailureClass.AMBIGUOUS),
        (failure(408), FailureClass.AMBIGUOUS),
        (failure(500, "InternalError", "etcdserver: leader changed"), FailureClass.AMBIGUOUS),
        (failure(500, "ServerTimeout"), FailureClass.AMBIGUOUS),
        (failure(500, "InternalError", 'failed calling webhook "x"'), FailureClass.REJECTED),
        (failure(500, body=""), FailureClass.AMBIGUOUS),
        (failure(502, body="bad gateway"), FailureClass.AMBIGUOUS),
        (failure(504, "Timeout"), FailureClass.AMBIGUOUS),
        *[
            (failure(code), FailureClass.DEFINITE)
            for code in (301, 400, 401, 403, 404, 405, 409, 410, 413, 415, 422, 501)
        ],
    ],
    ids=lambda value: f"{value.status} {value.body}" if isinstance(value, ApiException) else value.name,
)
def test_classify_by_status(error, outcome):
    assert classify(error) is outcome


def test_status_outranks_causes():
    error = failure(404)
    error.__cause__ = ConnectionResetError()
    assert classify(error) is FailureClass.DEFINITE
    error = failure(503, "ServiceUnavailable")
    error.__cause__ = ssl.SSLCertVerificationError()
    assert classify(error) is FailureClass.REJECTED


def wrapped(inner):
    """As urllib3 hands it on: in `reason`, and in a chain."""
    pool = urllib3.HTTPConnectionPool("x")
    error = urllib3.exceptions.MaxRetryError(pool, "/", inner)
    error.__cause__ = inner
    return error


pool = urllib3.HTTPConnectionPool("x")
key = aiohttp.client_reqrep.ConnectionKey("x", 1, True, True, None, None, None)


@pytest.mark.parametrize(
    ("error", "outcome"),
    [
        (ConnectionRefusedError(), FailureClass.NOT_SENT),
        (OSError(errno.ENETUNREACH, ""), FailureClass.NOT_SENT),
        (OSError(errno.EHOSTUNREACH, ""), FailureClass.NOT_SENT),
        (socket.gaierror(socket.EAI_AGAIN, ""), FailureClass.NOT_SENT),
        (socket.gaierror(socket.EAI_NONAME, ""), FailureClass.NOT_SENT),
        (urllib3.exceptions.NewConnectionError(pool, ""), FailureClass.NOT_SENT),
        (urllib3.exceptions.ConnectTimeoutError(), FailureClass.NOT_SENT),
        (aiohttp.ClientConnectorError(key, OSError(errno.ECONNREFUSED, "")), FailureClass.NOT_SENT),
        (aiohttp.ConnectionTimeoutError(), FailureClass.NOT_SENT),
        (ConnectionResetError(), FailureClass.AMBIGUOUS),
        (BrokenPipeError(), FailureClass.AMBIGUOUS),
        (OSError(errno.EPIPE, ""), FailureClass.AMBIGUOUS),
        (OSError(errno.ETIMEDOUT, ""), FailureClass.AMBIGUOUS),
        (TimeoutError(), FailureClass.AMBIGUOUS),
        (urllib3.exceptions.ReadTimeoutError(pool, "/", ""), FailureClass.AMBIGUOUS),
        (
            urllib3.exceptions.ProtocolError("aborted", http.client.RemoteDisconnected()),
            FailureClass.AMBIGUOUS,
        ),
        (urllib3.exceptions.IncompleteRead(1, 2), FailureClass.AMBIGUOUS),
        (http.client.IncompleteRead(b""), FailureClass.AMBIGUOUS),
        (http.client.BadStatusLine("x"), FailureClass.AMBIGUOUS),
        (aiohttp.ServerDisconnectedError(), FailureClass.AMBIGUOUS),
        (aiohttp.ClientPayloadError(), FailureClass.AMBIGUOUS),
        (aiohttp.ClientOSError(errno.ECONNRESET, ""), FailureClass.AMBIGUOUS),
        (aiohttp.SocketTimeoutError(), FailureClass.AMBIGUOUS),
        (json.JSONDecodeError("", "", 0), FailureClass.AMBIGUOUS),
        (UnicodeDecodeError("utf-8", b"\xff", 0, 1, ""), FailureClass.AMBIGUOUS),
        (ApiException(status=0, reason="Unsupported content type: x/y"), FailureClass.AMBIGUOUS),
        (ssl.SSLEOFError(), FailureClass.AMBIGUOUS),
        (ssl.SSLCertVerificationError(), FailureClass.DEFINITE),
        (tls_error("SSL", "TLSV13_ALERT_CERTIFICATE_REQUIRED"), FailureClass.DEFINITE),
        (tls_error("SSL", "TLSV1_ALERT_UNKNOWN_CA"), FailureClass.DEFINITE),
        (tls_error("X509", "KEY_VALUES_MISMATCH"), FailureClass.DEFINITE),
        (tls_error("SSL", "DECRYPTION_FAILED_OR_BAD_RECORD_MAC"), FailureClass.AMBIGUOUS),
        (tls_error("SSL", "SSLV3_ALERT_BAD_RECORD_MAC"), FailureClass.AMBIGUOUS),
        (tls_error("SSL", "WRONG_VERSION_NUMBER"), FailureClass.AMBIGUOUS),
        (ApiException(status=0, reason="SSLError"), FailureClass.DEFINITE),
        (ValueError("a mistake in the call"), FailureClass.DEFINITE),
        (TypeError(), FailureClass.DEFINITE),
        (OSError(errno.ENOSPC, ""), FailureClass.DEFINITE),
    ],
    ids=lambda value: value.name if isinstance(value, FailureClass) else type(value).__name__,
)
def test_classify_by_cause_chain(error, outcome):
    assert classify(error) is outcome
    if outcome is not FailureClass.DEFINITE:
        deep = RuntimeError()
        deep.__context__ = wrapped(error)
        assert classify(deep) is outcome


def test_untrusted_certificate_is_permanent_at_any_depth():
    error = wrapped(ConnectionResetError())
    error.reason.__cause__ = ssl.SSLCertVerificationError()
    assert classify(error) is FailureClass.DEFINITE


def test_cyclic_chain_ends():
    one, two = RuntimeError(), ConnectionResetError()
    one.__cause__, two.__cause__ = two, one
    assert classify(one) is FailureClass.AMBIGUOUS


def test_already_exists_is_not_conflict():
    assert is_already_exists(failure(409, "AlreadyExists"))
    assert not is_already_exists(failure(409, "Conflict"))
    assert not is_already_exists(failure(409, body="<html>"))
    assert not is_already_exists(failure(404, "AlreadyExists"))


def test_description_contains_no_body():
    error = failure(422, "Invalid", "password hunter2 is too short")
    assert describe(error) == "HTTP 422 Invalid"
    assert describe(failure(500, "hunter2 as a reason")) == "HTTP 500"
    assert describe(wrapped(ConnectionResetError("hunter2"))).startswith("ambiguous: MaxRetryError")
    assert "hunter2" not in describe(wrapped(ConnectionResetError("hunter2")))


@pytest.mark.parametrize(
    ("status", "headers", "body", "asked"),
    [
        (429, {"Retry-After": "7"}, "", 7),
        (503, {"Retry-After": "7"}, "", 7),
        (500, {"Retry-After": "7"}, "", None),
        (429, {"Retry-After": "soon"}, "", None),
        (429, None, '{"kind":"Status","details":{"retryAfterSeconds":3}}', 3),
        (429, {}, '{"kind":"Status","details":{"retryAfterSeconds":-3}}', None),
        (
            429,
            {"Retry-After": "Sun, 09 Sep 2001 01:46:52 GMT", "Date": "Sun, 09 Sep 2001 01:46:40 GMT"},
            "",
            12,
        ),
    ],
)
def test_retry_after(status, headers, body, asked):
    assert retry_after_seconds(failure(status, headers=headers, body=body)) == asked


@given(st.one_of(st.binary(), st.text(), st.none(), st.integers()))
@settings(max_examples=60, deadline=None)
def test_any_body_is_parsed_without_error(body):
    error = failure(500, body="")
    error.body = body
    assert parse_status(error).reason == ""
    assert classify(error) is FailureClass.AMBIGUOUS


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(),
        lambda inner: (
            st.lists(inner) | st.dictionaries(st.sampled_from(["kind", "details", "causes", "x"]), inner)
        ),
    )
)
@settings(max_examples=40, deadline=None)
def test_any_status_object_is_parsed_without_error(value):
    parse_status({"kind": "Status", "reason": value, "message": value, "details": value})
    error = failure(429, body=json.dumps({"kind": "Status", "details": value}))
    retry_after_seconds(error)


def test_infinitely_nested_body_is_unreadable():
    assert not parse_status(failure(500, body="[" * 60_000)).is_kubernetes_status


def test_failure_implies_object_state():
    assert write_outcome(failure(403)) is WriteOutcome.NOT_DONE
    assert write_outcome(failure(504)) is WriteOutcome.UNKNOWN
    error = failure(403)
    record_write_outcome(error, WriteOutcome.UNKNOWN)
    record_write_outcome(error, WriteOutcome.UNKNOWN)
    assert write_outcome(error) is WriteOutcome.UNKNOWN
    assert len(error.__notes__) == 1
    outer = RuntimeError()
    outer.__cause__ = error
    assert write_outcome(outer) is WriteOutcome.UNKNOWN
