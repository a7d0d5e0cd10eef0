"""Classifies failed requests: what a failure says about the state of the server.

An HTTP status, if there is one, decides. Without one, the types and errno values of the cause chain decide;
they are compared by name, so that neither urllib3 nor aiohttp is imported. Responses are untrusted input:
nothing here raises on it. `retry_table` decides which verbs are retried after which class of failure.
"""

from __future__ import annotations

import errno
import json
import re
import socket
import ssl
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any

from holdfast.errors import HoldfastError, ResponseTooLargeError, UnreadableResponseError
from holdfast.retry import causes, parse_retry_after

if TYPE_CHECKING:
    from collections.abc import Iterator

SUCCESS = range(200, 300)
# Reasons are single CamelCase words; anything else could be text of the object.
_REASON = re.compile(r"[A-Z][A-Za-z]{1,40}")
_MAX_BODY_LENGTH = 64 * 1024


@dataclass(frozen=True, slots=True)
class ApiStatus:
    """The parts of a Kubernetes `Status` object that this package uses."""

    reason: str = ""
    message: str = ""
    retry_after: float | None = None
    invalid_fields: tuple[str, ...] = ()
    """paths of the invalid or conflicting fields"""
    is_kubernetes_status: bool = False
    """False if a proxy sent the response, or if it cannot be parsed"""


def parse_status(error: Any) -> ApiStatus:
    """Parse the Status of an ApiException or of a watch event; never raises."""
    if isinstance(error, dict):
        return _status_from_object(error)
    body = getattr(error, "body", None)
    if isinstance(body, bytes):
        body = body[:_MAX_BODY_LENGTH].decode("utf-8", "replace")
    if not isinstance(body, str) or len(body) > _MAX_BODY_LENGTH:
        return ApiStatus()
    try:
        return _status_from_object(json.loads(body))
    except (ValueError, RecursionError):
        # Deeply nested JSON exceeds the recursion limit of the parser.
        return ApiStatus()


def _status_from_object(parsed: Any) -> ApiStatus:
    if not isinstance(parsed, dict) or parsed.get("kind") != "Status":
        return ApiStatus()
    reason, message, details = parsed.get("reason"), parsed.get("message"), parsed.get("details")
    details = details if isinstance(details, dict) else {}
    rows = details.get("causes")
    fields = [row.get("field") for row in rows if isinstance(row, dict)] if isinstance(rows, list) else []
    return ApiStatus(
        reason=reason if isinstance(reason, str) and _REASON.fullmatch(reason) else "",
        message=message if isinstance(message, str) else "",
        retry_after=parse_retry_after(details.get("retryAfterSeconds")),
        invalid_fields=tuple(field for field in fields if isinstance(field, str)),
        is_kubernetes_status=True,
    )


def http_status(error: Any) -> int | None:
    """The HTTP status of an error, or None if no server has sent one."""
    if type(error).__module__.startswith("aiohttp"):
        # aiohttp sets status 400 when it cannot parse a response.
        return None
    status = getattr(error, "status", None)
    return status if isinstance(status, int) and not isinstance(status, bool) and status > 0 else None


def retry_after_seconds(error: BaseException) -> float | None:
    """Seconds from the Retry-After header of a 429 or 503, else from its Status."""
    if http_status(error) not in {429, 503}:
        return None
    headers = getattr(error, "headers", None)
    try:
        value = headers.get("Retry-After") if headers is not None else None
        date = headers.get("Date") if headers is not None else None
    except Exception:  # noqa: BLE001 - the type of the headers depends on the transport
        value = date = None
    seconds = parse_retry_after(value, date)
    return parse_status(error).retry_after if seconds is None else seconds


_ENCLOSING_ERROR = "_holdfast_handled"


def record_enclosing_error(error: BaseException, handled: BaseException | None) -> None:
    """Remember on the error of a request which exception was being handled when the request was made.

    A call inside an `except` block has that exception in its cause chain; it says nothing about the request.
    """
    if handled is None or handled is error:
        return
    try:
        setattr(error, _ENCLOSING_ERROR, handled)
    except AttributeError:  # an exception with slots
        return


def enclosing_error(error: BaseException) -> BaseException | None:
    """The exception that was being handled when the request was made."""
    recorded = (getattr(each, _ENCLOSING_ERROR, None) for each in causes(error))
    return next((each for each in recorded if isinstance(each, BaseException)), None)


def request_causes(error: BaseException) -> Iterator[BaseException]:
    """The cause chain of a request, without the exception that was being handled when it was made."""
    handled = enclosing_error(error)
    if handled is None:
        return causes(error)
    return causes(error, exclude={id(each) for each in causes(handled) if each is not error})


class FailureClass(Enum):
    """Whether a failed request may have been applied."""

    NOT_SENT = "not sent"
    """not applied: connection refused, unknown host name, no route"""
    REJECTED = "rejected"
    """not applied: the server is overloaded or not ready; retry later"""
    AMBIGUOUS = "ambiguous"
    """possibly applied: the response was lost or reports a timeout"""
    DEFINITE = "definite"
    """not applied: the server rejected it and would reject it again"""


class WriteOutcome(Enum):
    """Whether a write that raised was applied."""

    NOT_DONE = "not done"
    UNKNOWN = "unknown"


_NOT_SENT_ERRNOS = {
    errno.ECONNREFUSED,
    errno.ENETUNREACH,
    errno.EHOSTUNREACH,
    errno.ENETDOWN,
    errno.EHOSTDOWN,
}
_AMBIGUOUS_ERRNOS = {errno.ECONNRESET, errno.EPIPE, errno.ETIMEDOUT, errno.ECONNABORTED}
_NOT_SENT_TYPES = {
    "NewConnectionError",
    "ConnectTimeoutError",
    "NameResolutionError",
    "ConnectionTimeoutError",
    "ClientConnectorError",
    "ClientConnectorDNSError",
    "ClientProxyConnectionError",
}
_AMBIGUOUS_TYPES = {
    "ProtocolError",
    "ReadTimeoutError",
    "TimeoutError",
    "TimeoutStateError",
    "RemoteDisconnected",
    "IncompleteRead",
    "ServerDisconnectedError",
    "ServerTimeoutError",
    "SocketTimeoutError",
    "ClientOSError",
    "ClientPayloadError",
    "TransferEncodingError",
    "ContentLengthError",
    # The response cannot be parsed.
    "JSONDecodeError",
    "UnicodeDecodeError",
    "DecodeError",
    "BadStatusLine",
    "LineTooLong",
    "InvalidHeader",
    "InvalidChunkLength",
    "ResponseError",
    "ClientResponseError",
    "ContentEncodingError",
    "HTTPException",
}
# OpenSSL reasons of handshakes that would fail again. With TLS 1.3 the server rejects a client certificate
# after the request was sent.
_PERMANENT_TLS_REASONS = (
    "CERTIFICATE",
    "UNKNOWN_CA",
    "ACCESS_DENIED",
    "HANDSHAKE_FAILURE",
    "INSUFFICIENT_SECURITY",
    "NO_SHARED_CIPHER",
    "NO_CIPHERS_AVAILABLE",
    "NO_PROTOCOLS_AVAILABLE",
    "PROTOCOL_VERSION",
    "UNSUPPORTED_PROTOCOL",
    "HTTP_REQUEST",
)
# Packages whose class names are trusted; a user's own class named TimeoutError is not.
_KNOWN_PACKAGES = ("urllib3", "aiohttp", "http", "json", "asyncio", "builtins", "holdfast", "socket")


def _classify_transport_error(error: BaseException) -> FailureClass:
    """Classify the cause chain of an error; an untrusted certificate outweighs everything else.

    The client's own "not sent" types wrap the timeout or reset of a connection attempt, so the outermost one
    decides. Further down the chain, evidence that something was sent outweighs "not sent".
    """
    chain = list(request_causes(error))
    if any(map(_is_tls_trust_failure, chain)):
        return FailureClass.DEFINITE
    classified = [(each, failure) for each in chain if (failure := _classify_one(each)) is not None]
    if not classified:
        return FailureClass.DEFINITE
    if _known_type_names(classified[0][0]) & _NOT_SENT_TYPES:
        return FailureClass.NOT_SENT
    is_ambiguous = any(failure is FailureClass.AMBIGUOUS for _, failure in classified)
    return FailureClass.AMBIGUOUS if is_ambiguous else FailureClass.NOT_SENT


def is_tls_trust_error(error: BaseException) -> bool:
    """Whether a certificate was not trusted."""
    return any(map(_is_tls_trust_failure, request_causes(error)))


def _is_tls_trust_failure(error: BaseException) -> bool:
    """Whether a TLS error is about trust; a damaged record is not."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return True
    if not isinstance(error, ssl.SSLError):
        return False
    if getattr(error, "library", "SSL") not in {None, "", "SSL"}:
        return True  # the local certificate or key cannot be read
    reason = getattr(error, "reason", None) or ""
    return any(word in reason for word in _PERMANENT_TLS_REASONS)


def _classify_one(error: BaseException) -> FailureClass | None:
    if isinstance(error, HoldfastError):
        # Errors of holdfast also derive from TimeoutError and the like, but are not transport errors.
        is_unreadable = isinstance(error, ResponseTooLargeError | UnreadableResponseError)
        return FailureClass.AMBIGUOUS if is_unreadable else None
    names = _known_type_names(error)
    if isinstance(error, socket.gaierror | ConnectionRefusedError) or names & _NOT_SENT_TYPES:
        return FailureClass.NOT_SENT
    if isinstance(error, OSError):
        if error.errno in _NOT_SENT_ERRNOS:
            return FailureClass.NOT_SENT
        if error.errno in _AMBIGUOUS_ERRNOS:
            return FailureClass.AMBIGUOUS
    is_lost = isinstance(error, ConnectionError | TimeoutError | ssl.SSLError) or names & _AMBIGUOUS_TYPES
    return FailureClass.AMBIGUOUS if is_lost or _is_unsupported_content_type(error) else None


def _known_type_names(error: BaseException) -> set[str]:
    return {
        kind.__name__ for kind in type(error).__mro__ if kind.__module__.partition(".")[0] in _KNOWN_PACKAGES
    }


# The API server sends 500 when etcd changes its leader, and 504 when a request times out. In both cases a
# write may have been stored.
_AMBIGUOUS_STATUSES = {408, 500, 502, 504}
_OUTCOME_ATTRIBUTE = "_holdfast_done"


def classify(error: BaseException) -> FailureClass:
    """The failure class of any error that a client call can raise."""
    status = http_status(error)
    if status is None:
        return _classify_transport_error(error)
    if status == 429:  # noqa: PLR2004 - status codes are their own names
        return FailureClass.REJECTED
    if status == 503:  # noqa: PLR2004
        # The API server sends 503 before it processes a request. A proxy may send it after forwarding one.
        return FailureClass.REJECTED if parse_status(error).is_kubernetes_status else FailureClass.AMBIGUOUS
    if status in _AMBIGUOUS_STATUSES:
        return FailureClass.REJECTED if _is_failed_webhook(error) else FailureClass.AMBIGUOUS
    # Success, but the response could not be parsed.
    return FailureClass.AMBIGUOUS if status in SUCCESS else FailureClass.DEFINITE


def _is_unsupported_content_type(error: BaseException) -> bool:
    """The official client raises status 0 with this reason."""
    reason = getattr(error, "reason", None)
    return (
        getattr(error, "status", None) == 0
        and isinstance(reason, str)
        and reason.startswith("Unsupported content type")
    )


def _is_failed_webhook(error: BaseException) -> bool:
    """Admission precedes storage: a webhook that could not be called stopped the request."""
    status = parse_status(error)
    return status.reason == "InternalError" and "failed calling webhook" in status.message


def describe(error: BaseException) -> str:
    """A short description that quotes neither body nor headers: the status, or the exception types."""
    status = http_status(error)
    if status is not None:
        reason = parse_status(error).reason
        return f"HTTP {status} {reason}".rstrip()
    names = list(dict.fromkeys(type(each).__name__ for each in request_causes(error)))
    return f"{classify(error).value}: {' < '.join(names[:3])}"


def is_already_exists(error: BaseException) -> bool:
    """Whether the error is a 409 AlreadyExists, not a 409 Conflict."""
    return http_status(error) == 409 and parse_status(error).reason == "AlreadyExists"  # noqa: PLR2004


def record_write_outcome(error: BaseException, outcome: WriteOutcome) -> None:
    """Store the outcome on the error, for `write_outcome`; add a note if it is unknown."""
    try:
        setattr(error, _OUTCOME_ATTRIBUTE, outcome)
    except AttributeError:  # an exception with slots
        return
    if outcome is WriteOutcome.UNKNOWN:
        text = "outcome: unknown; the request may have been applied"
        if text not in getattr(error, "__notes__", []):
            error.add_note(text)


def write_outcome(error: BaseException) -> WriteOutcome:
    """Whether a failed write was applied: certainly not, or unknown."""
    for each in request_causes(error):
        outcome = getattr(each, _OUTCOME_ATTRIBUTE, None)
        if isinstance(outcome, WriteOutcome):
            return outcome
    return WriteOutcome.UNKNOWN if classify(error) is FailureClass.AMBIGUOUS else WriteOutcome.NOT_DONE
