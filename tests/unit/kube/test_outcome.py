"""Outcome classes: by status where there is one, else by the cause chain."""

import errno
import http.client
import json
import socket
import ssl

import aiohttp
import pytest
import urllib3
from hypothesis import given, settings
from hypothesis import strategies as st
from kubernetes.client import ApiException

from holdfast.kube import Done, Outcome, classify, describe, outcome_of
from holdfast.kube.outcome import is_already_exists, mark
from holdfast.kube.status import read_status, retry_after


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
        (failure(429, "TooManyRequests"), Outcome.REJECTED),
        (failure(429, body="<html>"), Outcome.REJECTED),
        (failure(503, "ServiceUnavailable"), Outcome.REJECTED),
        (failure(503, body="<html>no upstream</html>"), Outcome.AMBIGUOUS),
        (failure(408), Outcome.AMBIGUOUS),
        (failure(500, "InternalError", "etcdserver: leader changed"), Outcome.AMBIGUOUS),
        (failure(500, "ServerTimeout"), Outcome.AMBIGUOUS),
        (failure(500, "InternalError", 'failed calling webhook "x"'), Outcome.REJECTED),
        (failure(500, body=""), Outcome.AMBIGUOUS),
        (failure(502, body="bad gateway"), Outcome.AMBIGUOUS),
        (failure(504, "Timeout"), Outcome.AMBIGUOUS),
        *[
            (failure(code), Outcome.DEFINITE)
            for code in (301, 400, 401, 403, 404, 405, 409, 410, 413, 415, 422, 501)
        ],
    ],
    ids=lambda value: f"{value.status} {value.body}" if isinstance(value, ApiException) else value.name,
)
def test_by_status(error, outcome):
    assert classify(error) is outcome


def test_a_status_outweighs_its_causes():
    error = failure(404)
    error.__cause__ = ConnectionResetError()
    assert classify(error) is Outcome.DEFINITE
    error = failure(503, "ServiceUnavailable")
    error.__cause__ = ssl.SSLCertVerificationError()
    assert classify(error) is Outcome.REJECTED


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
        (ConnectionRefusedError(), Outcome.NOT_SENT),
        (OSError(errno.ENETUNREACH, ""), Outcome.NOT_SENT),
        (OSError(errno.EHOSTUNREACH, ""), Outcome.NOT_SENT),
        (socket.gaierror(socket.EAI_AGAIN, ""), Outcome.NOT_SENT),
        (socket.gaierror(socket.EAI_NONAME, ""), Outcome.NOT_SENT),
        (urllib3.exceptions.NewConnectionError(pool, ""), Outcome.NOT_SENT),
        (urllib3.exceptions.ConnectTimeoutError(), Outcome.NOT_SENT),
        (aiohttp.ClientConnectorError(key, OSError(errno.ECONNREFUSED, "")), Outcome.NOT_SENT),
        (aiohttp.ConnectionTimeoutError(), Outcome.NOT_SENT),
        (ConnectionResetError(), Outcome.AMBIGUOUS),
        (BrokenPipeError(), Outcome.AMBIGUOUS),
        (OSError(errno.EPIPE, ""), Outcome.AMBIGUOUS),
        (OSError(errno.ETIMEDOUT, ""), Outcome.AMBIGUOUS),
        (TimeoutError(), Outcome.AMBIGUOUS),
        (urllib3.exceptions.ReadTimeoutError(pool, "/", ""), Outcome.AMBIGUOUS),
        (urllib3.exceptions.ProtocolError("aborted", http.client.RemoteDisconnected()), Outcome.AMBIGUOUS),
        (urllib3.exceptions.IncompleteRead(1, 2), Outcome.AMBIGUOUS),
        (http.client.IncompleteRead(b""), Outcome.AMBIGUOUS),
        (http.client.BadStatusLine("x"), Outcome.AMBIGUOUS),
        (aiohttp.ServerDisconnectedError(), Outcome.AMBIGUOUS),
        (aiohttp.ClientPayloadError(), Outcome.AMBIGUOUS),
        (aiohttp.ClientOSError(errno.ECONNRESET, ""), Outcome.AMBIGUOUS),
        (aiohttp.SocketTimeoutError(), Outcome.AMBIGUOUS),
        (json.JSONDecodeError("", "", 0), Outcome.AMBIGUOUS),
        (UnicodeDecodeError("utf-8", b"\xff", 0, 1, ""), Outcome.AMBIGUOUS),
        (ApiException(status=0, reason="Unsupported content type: x/y"), Outcome.AMBIGUOUS),
        (ssl.SSLEOFError(), Outcome.AMBIGUOUS),
        (ssl.SSLCertVerificationError(), Outcome.DEFINITE),
        (tls_error("SSL", "TLSV13_ALERT_CERTIFICATE_REQUIRED"), Outcome.DEFINITE),
        (tls_error("SSL", "TLSV1_ALERT_UNKNOWN_CA"), Outcome.DEFINITE),
        (tls_error("X509", "KEY_VALUES_MISMATCH"), Outcome.DEFINITE),
        (tls_error("SSL", "DECRYPTION_FAILED_OR_BAD_RECORD_MAC"), Outcome.AMBIGUOUS),
        (tls_error("SSL", "SSLV3_ALERT_BAD_RECORD_MAC"), Outcome.AMBIGUOUS),
        (tls_error("SSL", "WRONG_VERSION_NUMBER"), Outcome.AMBIGUOUS),
        (ApiException(status=0, reason="SSLError"), Outcome.DEFINITE),
        (ValueError("a mistake in the call"), Outcome.DEFINITE),
        (TypeError(), Outcome.DEFINITE),
        (OSError(errno.ENOSPC, ""), Outcome.DEFINITE),
    ],
    ids=lambda value: value.name if isinstance(value, Outcome) else type(value).__name__,
)
def test_by_the_cause_chain(error, outcome):
    assert classify(error) is outcome
    if outcome is not Outcome.DEFINITE:
        deep = RuntimeError()
        deep.__context__ = wrapped(error)
        assert classify(deep) is outcome


def test_a_certificate_that_is_not_trusted_is_final_however_deep():
    error = wrapped(ConnectionResetError())
    error.reason.__cause__ = ssl.SSLCertVerificationError()
    assert classify(error) is Outcome.DEFINITE


def test_a_cyclic_chain_ends():
    one, two = RuntimeError(), ConnectionResetError()
    one.__cause__, two.__cause__ = two, one
    assert classify(one) is Outcome.AMBIGUOUS


def test_already_exists_is_not_conflict():
    assert is_already_exists(failure(409, "AlreadyExists"))
    assert not is_already_exists(failure(409, "Conflict"))
    assert not is_already_exists(failure(409, body="<html>"))
    assert not is_already_exists(failure(404, "AlreadyExists"))


def test_describe_holds_nothing_of_the_body():
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
    assert retry_after(failure(status, headers=headers, body=body)) == asked


@given(st.one_of(st.binary(), st.text(), st.none(), st.integers()))
@settings(max_examples=60, deadline=None)
def test_no_body_makes_the_reader_raise(body):
    error = failure(500, body="")
    error.body = body
    assert read_status(error).reason == ""
    assert classify(error) is Outcome.AMBIGUOUS


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(),
        lambda inner: (
            st.lists(inner) | st.dictionaries(st.sampled_from(["kind", "details", "causes", "x"]), inner)
        ),
    )
)
@settings(max_examples=40, deadline=None)
def test_no_status_object_makes_the_reader_raise(value):
    read_status({"kind": "Status", "reason": value, "message": value, "details": value})
    error = failure(429, body=json.dumps({"kind": "Status", "details": value}))
    retry_after(error)


def test_nesting_without_end_is_nothing_readable():
    assert not read_status(failure(500, body="[" * 60_000)).genuine


def test_what_a_failure_says_about_the_state():
    assert outcome_of(failure(403)) is Done.NO
    assert outcome_of(failure(504)) is Done.UNKNOWN
    error = failure(403)
    mark(error, Done.UNKNOWN)
    mark(error, Done.UNKNOWN)
    assert outcome_of(error) is Done.UNKNOWN
    assert len(error.__notes__) == 1
    outer = RuntimeError()
    outer.__cause__ = error
    assert outcome_of(outer) is Done.UNKNOWN
