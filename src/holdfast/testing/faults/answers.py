"""Answers that the proxy makes up, worded as API servers or load balancers do, or as nobody should.

Not here: when they are given (`inject`).
"""

from __future__ import annotations

import json
import time
from email.utils import formatdate
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from holdfast.testing.faults.rules import Fault

_JSON = "application/json"
_HTML = b"<html><head><title>Error</title></head><body><h1>Error</h1><p>nginx</p></body></html>\n"


class Answer(NamedTuple):
    """A whole answer."""

    status: int
    content_type: str
    body: bytes
    headers: tuple[tuple[str, str], ...] = ()


class _Refusal(NamedTuple):
    code: int
    reason: str
    message: str


_REFUSALS = {
    "unauthorized": _Refusal(401, "Unauthorized", "Unauthorized"),
    "gone": _Refusal(410, "Expired", "The provided resource version is too old."),
    "too-many-requests": _Refusal(429, "TooManyRequests", "too many requests, please try again later"),
    "internal-error": _Refusal(500, "InternalError", "Internal error occurred: injected"),
    "leader-changed": _Refusal(500, "", "etcdserver: leader changed"),
    "server-timeout": _Refusal(
        500, "ServerTimeout", "The operation could not be completed at this time, please try again."
    ),
    "unavailable": _Refusal(
        503, "ServiceUnavailable", "the server is currently unable to handle the request"
    ),
    "gateway-timeout": _Refusal(504, "Timeout", "Timeout: request did not complete within the allotted time"),
    "event-gone": _Refusal(410, "Expired", "too old resource version: 1 (2)"),
    "event-too-many-requests": _Refusal(429, "TooManyRequests", "storage is (re)initializing"),
}


def made_up(fault: Fault) -> Answer:
    """The answer of a fault that is one."""
    status = 200 if fault.status is None else fault.status
    match fault.kind:
        case "html":
            return Answer(status, "text/html; charset=utf-8", _HTML)
        case "bad-gateway":
            return Answer(502, "text/html", _HTML)
        case "request-timeout":
            return Answer(408, "text/html", _HTML)
        case "empty":
            return Answer(status, _JSON, b"")
        case "invalid-utf8":
            return Answer(status, _JSON, b'{"kind":"Status","message":"\xff\xfe\xc3\x28"}')
        case _:
            refusal = _REFUSALS[fault.kind]
            body = json.dumps(status_object(fault)).encode()
            return Answer(refusal.code, _JSON, body, retry_after_headers(fault.retry_after))


def status_object(fault: Fault) -> dict[str, Any]:
    """The `Status` that the API server would send; its details repeat a Retry-After in seconds."""
    refusal = _REFUSALS[fault.kind]
    content: dict[str, Any] = {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": refusal.message,
        "code": refusal.code,
    }
    if refusal.reason:
        content["reason"] = refusal.reason
    form = fault.retry_after
    if isinstance(form, str) and form.isdecimal():
        content["details"] = {"retryAfterSeconds": int(form)}
    return content


def error_event(fault: Fault) -> bytes:
    """The line of a watch that ends it."""
    if fault.kind == "event-garbage":
        return b'{"type":"MODIFIED","object":{"kind":"Po\xff\n'
    return json.dumps({"type": "ERROR", "object": status_object(fault)}).encode() + b"\n"


def retry_after_headers(form: str | tuple[str, ...] | None) -> tuple[tuple[str, str], ...]:
    """The header in the form asked for, with the Date that an HTTP date is measured against."""
    now = time.time()
    date = ("Date", formatdate(now, usegmt=True))
    if form is None or form == "absent" or not isinstance(form, str):
        return (date,)
    if form.startswith("date:"):
        form = formatdate(now + int(form.removeprefix("date:")), usegmt=True)
    return (date, ("Retry-After", form))
