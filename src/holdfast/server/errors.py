"""Errors of the API: every failure becomes a problem with code, message and hint, and an HTTP status."""

# No `from __future__ import annotations`: Litestar reads the handlers' annotations at run time.
import logging
import re
from typing import Any

import msgspec
from litestar import Request, Response
from litestar.exceptions import HTTPException

from holdfast.api import Problem
from holdfast.errors import (
    ApiRequestRejectedError,
    HoldfastError,
    ObjectConflictError,
    TemporaryError,
    UsageError,
)
from holdfast.kube import http_status, parse_status
from holdfast.retry import causes

_log = logging.getLogger("holdfast.server")
_PATTERN_MISMATCH = re.compile(r"Expected `str` matching regex .*")
_CODE_BY_STATUS = {
    400: "bad-request", 401: "unauthorized", 404: "not-found", 405: "method-not-allowed",
    406: "not-acceptable", 409: "conflict", 413: "too-large", 415: "media-type", 422: "invalid",
    429: "too-many-requests",
}  # fmt: skip
_BAD_REQUEST, _FORBIDDEN, _NOT_FOUND, _CONFLICT, _GONE, _UNPROCESSABLE = 400, 403, 404, 409, 410, 422
_INTERNAL_ERROR, _BAD_GATEWAY, _UNAVAILABLE = 500, 502, 503
_RBAC_DENIAL = re.compile(r'User ".*" cannot [a-z]+ resource "')
"""Kubernetes' message when the ServiceAccount of this server lacks a permission; a client cannot fix that."""
_RETRY_AFTER_SECONDS = "1"


class ApiError(Exception):
    """A problem with its HTTP status."""

    def __init__(
        self, status: int, code: str, message: str, hint: str = "", headers: dict[str, str] | None = None
    ) -> None:
        super().__init__(message)
        self.status, self.headers = status, headers or {}
        self.problem = Problem(code=code, message=message, hint=hint)


class PodResponseLostError(ApiError):
    """The connection to a pod was lost: the request may or may not have been executed, so clients must not
    retry it.
    """

    def __init__(self, message: str) -> None:
        hint = "The request may have been executed: check the sandbox before you repeat it."
        super().__init__(_BAD_GATEWAY, "answer-lost", message, hint)


_NOT_FOUND_ERRORS = {
    "Sandbox": ("sandbox", "Run `holdfast sandbox list` to list all sandboxes."),
    "SandboxTemplate": ("template", "Run `holdfast template list` to list all templates."),
    "SandboxWarmPool": ("pool", "Run `holdfast pool list` to list all pools."),
    "Secret": ("secret", "Run `holdfast secret list` to list all secrets."),
}
"""Noun and hint by the kind of the object."""


def not_found(kind: str, name: str) -> ApiError:
    """Return the 404 error of a Sandbox, SandboxTemplate, SandboxWarmPool or secret."""
    noun, hint = _NOT_FOUND_ERRORS[kind]
    return ApiError(_NOT_FOUND, f"{noun}-missing", f"{noun} {name}: not found", hint)


def conflict(code: str, message: str, hint: str = "") -> ApiError:
    """Return the 409 error of an object whose state does not allow the request."""
    return ApiError(_CONFLICT, code, message, hint)


def bad_request(code: str, message: str, hint: str = "") -> ApiError:
    """Return the 400 error of a malformed request."""
    return ApiError(_BAD_REQUEST, code, message, hint)


def unprocessable(code: str, message: str, hint: str = "") -> ApiError:
    """Return the 422 error of a well-formed request that cannot be executed."""
    return ApiError(_UNPROCESSABLE, code, message, hint)


def as_api_error(error: Exception) -> ApiError:
    """Convert any exception to an API error; unexpected exceptions are logged."""
    if isinstance(error, ApiError):
        return error
    if isinstance(error, HTTPException):
        return _from_http_exception(error)
    if isinstance(error, HoldfastError):
        return _from_holdfast_error(error)
    _log.error("a request failed", exc_info=error)
    # The client gets no details: the text of an unexpected exception may quote secrets.
    return ApiError(
        _INTERNAL_ERROR, "internal", "the API server failed", "The log of the API server contains the cause."
    )


def problem_response(_request: Request[Any, Any, Any], error: Exception) -> Response[bytes]:
    """Return the HTTP response for an exception."""
    api_error = as_api_error(error)
    return Response(
        problem_body(api_error),
        status_code=api_error.status,
        media_type="application/json",
        headers=api_error.headers,
    )


def problem_body(error: ApiError) -> bytes:
    """Encode the problem of an error as JSON."""
    return msgspec.json.encode(error.problem)


def _from_http_exception(error: HTTPException) -> ApiError:
    extra = error.extra if isinstance(error.extra, list) else []
    details = [
        f"{detail.get('key', '')}: {detail.get('message', '')}".strip(": ")
        for detail in extra
        if isinstance(detail, dict)
    ]
    message = "; ".join(details) or error.detail or "malformed request"
    message = _PATTERN_MISMATCH.sub("invalid format", message)
    status = error.status_code
    code = _CODE_BY_STATUS.get(status, "refused" if status < _INTERNAL_ERROR else "internal")
    return ApiError(status, code, message.split("\n", 1)[0], "", dict(error.headers or {}))


def _from_holdfast_error(error: HoldfastError) -> ApiError:
    if isinstance(error, UsageError):
        return unprocessable(error.code, error.message, error.hint)
    if isinstance(error, ObjectConflictError):
        return ApiError(_CONFLICT, error.code, error.message, error.hint)
    if isinstance(error, ApiRequestRejectedError):
        return _from_cluster_refusal(error)
    if isinstance(error, TemporaryError):
        _log.warning("the cluster did not respond: %s", error)
        # With Retry-After, the client also repeats requests that must not run twice, such as an exec.
        # Streams therefore raise TemporaryError only while nothing has started, later PodResponseLostError.
        hint = "Retry the request."
        return ApiError(_UNAVAILABLE, error.code, error.message, hint, {"Retry-After": _RETRY_AFTER_SECONDS})
    _log.error("a request failed: %s", error)
    return ApiError(_INTERNAL_ERROR, error.code, error.message, error.hint)


def _from_cluster_refusal(error: ApiRequestRejectedError) -> ApiError:
    response = next((cause for cause in causes(error) if http_status(cause) is not None), error)
    status, message = http_status(response), parse_status(response).message
    if status in (_BAD_REQUEST, _UNPROCESSABLE):
        # The server has parsed the request: the API server rejects its content.
        return unprocessable("invalid", message or error.message, "Correct the request.")
    # Not from RBAC rules, but from a quota or an admission policy.
    if status == _FORBIDDEN and message and _RBAC_DENIAL.search(message) is None:
        hint = "A quota or admission policy forbids it: change the request or the policy."
        return unprocessable("forbidden", message, hint)
    if status == _GONE:
        return ApiError(
            _GONE, "page-expired", "the page token has expired", "List again from the first page."
        )
    if status == _NOT_FOUND:
        return ApiError(_NOT_FOUND, "not-found", message or error.message)
    _log.error("the cluster rejected a request: %s", error)
    return ApiError(_INTERNAL_ERROR, error.code, error.message, error.hint)
