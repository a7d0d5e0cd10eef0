"""Every refusal and failure as one line of JSON: a code, a sentence and a hint, with the HTTP status for it.

Not here: who raises them.
"""

# No `from __future__ import annotations`: the framework reads the handlers' annotations as they stand.
import logging
import re
from typing import Any

import msgspec
from litestar import Request, Response
from litestar.exceptions import HTTPException

from holdfast.errors import (
    ClusterRefusedError,
    HoldfastError,
    ObjectConflictError,
    TemporaryError,
    UsageError,
)
from holdfast.kube.status import http_status, read_status
from holdfast.retry import causes
from holdfast.sandbox.wire import Problem

_log = logging.getLogger("holdfast.server")
_REGEX = re.compile(r"Expected `str` matching regex .*")
_CODES = {
    400: "bad-request", 401: "unauthorized", 404: "not-found", 405: "method-not-allowed",
    406: "not-acceptable", 409: "conflict", 413: "too-large", 415: "media-type", 422: "invalid",
    429: "too-many-requests",
}  # fmt: skip
_BAD, _FORBIDDEN, _MISSING, _CONFLICT, _GONE, _INVALID = 400, 403, 404, 409, 410, 422
_BROKEN, _LOST, _NOT_NOW = 500, 502, 503
_OWN_RIGHTS = re.compile(r'User ".*" cannot [a-z]+ resource "')
"""How the cluster says that this server itself may not do it: no client can help that."""
_RETRY_AFTER = "1"


class ApiError(Exception):
    """A refusal with its HTTP status."""

    def __init__(
        self, status: int, code: str, message: str, hint: str = "", headers: dict[str, str] | None = None
    ) -> None:
        super().__init__(message)
        self.status, self.headers = status, headers or {}
        self.problem = Problem(code=code, message=message, hint=hint)


class AnswerLostError(ApiError):
    """It may have been carried out, and nobody knows: no client is told to send it again."""

    def __init__(self, message: str) -> None:
        hint = "It may have been carried out: look before you send it again."
        super().__init__(_LOST, "answer-lost", message, hint)


def missing(name: str) -> ApiError:
    """There is no such sandbox."""
    return ApiError(
        _MISSING,
        "sandbox-missing",
        f"there is no sandbox {name}",
        "`holdfast sandbox list` shows those that are there.",
    )


def conflict(code: str, message: str, hint: str = "") -> ApiError:
    """It cannot be done to the sandbox as it is."""
    return ApiError(_CONFLICT, code, message, hint)


def bad_request(code: str, message: str, hint: str = "") -> ApiError:
    """The request cannot be meant like that."""
    return ApiError(_BAD, code, message, hint)


def impossible(code: str, message: str, hint: str = "") -> ApiError:
    """The request can be read, but not be carried out."""
    return ApiError(_INVALID, code, message, hint)


def as_api_error(error: Exception) -> ApiError:
    """What an error of any floor is to a client."""
    if isinstance(error, ApiError):
        return error
    if isinstance(error, HTTPException):
        return _from_framework(error)
    if isinstance(error, HoldfastError):
        return _from_holdfast(error)
    _log.error("a request failed", exc_info=error)
    return ApiError(_BROKEN, "internal", "the gateway's API failed; its log says why", "holdfast logs")


def answer(_request: Request[Any, Any, Any], error: Exception) -> Response[bytes]:
    """The answer for an error."""
    found = as_api_error(error)
    return Response(
        body(found), status_code=found.status, media_type="application/json", headers=found.headers
    )


def body(error: ApiError) -> bytes:
    """The line of JSON."""
    return msgspec.json.encode(error.problem)


def _from_framework(error: HTTPException) -> ApiError:
    extra = error.extra if isinstance(error.extra, list) else []
    details = [
        f"{each.get('key', '')}: {each.get('message', '')}".strip(": ")
        for each in extra
        if isinstance(each, dict)
    ]
    message = "; ".join(details) or error.detail or "the request cannot be read"
    message = _REGEX.sub("it does not have the form that is asked for", message)
    status = error.status_code
    code = _CODES.get(status, "refused" if status < _BROKEN else "internal")
    return ApiError(status, code, message.split("\n", 1)[0], "", dict(error.headers or {}))


def _from_holdfast(error: HoldfastError) -> ApiError:
    if isinstance(error, UsageError):
        return impossible(error.code, error.message, error.hint)
    if isinstance(error, ObjectConflictError):
        return ApiError(_CONFLICT, error.code, error.message, error.hint)
    if isinstance(error, ClusterRefusedError):
        return _from_cluster(error)
    if isinstance(error, TemporaryError):
        _log.warning("the cluster did not answer: %s", error)
        hint = "Try again; nothing is lost."
        return ApiError(_NOT_NOW, error.code, error.message, hint, {"Retry-After": _RETRY_AFTER})
    _log.error("a request failed: %s", error)
    return ApiError(_BROKEN, error.code, error.message, error.hint)


def _from_cluster(error: ClusterRefusedError) -> ApiError:
    status, said = _BROKEN, ""
    for each in causes(error):
        found = http_status(each)
        if found is not None:
            status, said = found, read_status(each).message
            break
    if status in (_BAD, _INVALID):
        # It could be read here: what is wrong is what it asks for.
        return impossible("invalid", said or error.message, "Correct the request.")
    if status == _FORBIDDEN and _is_about_the_request(said):
        hint = "It goes against a rule of the cluster: ask for something else, or have the rule changed."
        return impossible("forbidden", said, hint)
    if status == _GONE:
        return ApiError(_GONE, "page-expired", "that page is no longer kept", "Start again from the first.")
    if status == _MISSING:
        return ApiError(_MISSING, "not-found", said or error.message)
    _log.error("the cluster refused a request: %s", error)
    return ApiError(_BROKEN, error.code, error.message, error.hint)


def _is_about_the_request(said: str) -> bool:
    """Whether a 403 is about what was asked for, as of quotas and admission policies, and not about us."""
    return bool(said) and _OWN_RIGHTS.search(said) is None
