"""Translation of HTTP and connection errors of the gateway's API, and which requests may be retried."""

from __future__ import annotations

import asyncio
import re
import shlex
import ssl
from typing import TYPE_CHECKING

import msgspec

from holdfast import home
from holdfast.api import Problem
from holdfast.errors import (
    ApiRefusedError,
    ApiRequestRejectedError,
    DiskFullError,
    GatewayUnavailableError,
    GatewayUnreachableError,
    HoldfastError,
    ObjectConflictError,
    PathNotFoundError,
    PathPermissionError,
    PoolNotFoundError,
    ResponseLostError,
    SandboxNotFoundError,
    SecretNotFoundError,
    TemplateNotFoundError,
    UsageError,
)
from holdfast.retry import causes, parse_retry_after

if TYPE_CHECKING:
    from collections.abc import Mapping

    from holdfast.client.transport import GatewayEndpoint

# OpenSSL's X509_V_ERR_CERT_NOT_YET_VALID and X509_V_ERR_CERT_HAS_EXPIRED.
_VALIDITY_CODES = (9, 10)
# What a server sends for a client certificate that is expired or, with OpenSSL, not valid yet.
_VALIDITY_ALERTS = ("ALERT_CERTIFICATE_EXPIRED", "ALERT_BAD_CERTIFICATE")
_NOT_FOUND, _CONFLICT, _TOO_MANY_REQUESTS, _SERVER_ERROR, _BAD_GATEWAY = 404, 409, 429, 500, 502
_UNAUTHORIZED = (401, 403)
_INVALID_REQUEST = (400, 413, 422)
_MISSING_OBJECT_ERRORS: dict[str, type[HoldfastError]] = {
    error.code: error
    for error in (SandboxNotFoundError, TemplateNotFoundError, PoolNotFoundError, SecretNotFoundError)
}
# Failures inside the sandbox: no object is in the way.
_CONFLICT_ERRORS: dict[str, type[HoldfastError]] = {
    PathNotFoundError.code: PathNotFoundError,
    PathPermissionError.code: PathPermissionError,
    "no-tar": ApiRequestRejectedError,
    "copy-failed": ApiRequestRejectedError,
    "disk-full": DiskFullError,
}
# Commands that use the active gateway unless `--gateway` names another one; not their help.
_GATEWAY_COMMAND = re.compile(
    r"`holdfast (?:(?:sandbox|template|pool|secret) [a-z]+|image push)\b(?! --(?:help|gateway)\b)"
)


def name_gateway(text: str, gateway: str) -> str:
    """Add `--gateway` to the commands in a text that would use the active gateway otherwise.

    Args:
        text: a text with commands in backticks.
        gateway: name of the gateway; empty for the active one.
    """
    if not gateway:
        return text
    return _GATEWAY_COMMAND.sub(lambda match: f"{match[0]} --gateway {shlex.quote(gateway)}", text)


def error_from_response(
    status: int, body: bytes, headers: Mapping[str, str], *, operation: str, gateway: str
) -> HoldfastError:
    """Translate an error response.

    The HTTP status decides; the code in the body only distinguishes cases of one status.

    Args:
        status: HTTP status.
        body: response body, usually a Problem.
        headers: response headers.
        operation: method and path, for the message.
        gateway: name of the gateway, for the message and the commands in the hint.
    """
    problem = _decode_problem(body)
    message = problem.message if problem else f"{operation}: the gateway's API returned HTTP {status}"
    hint = name_gateway(problem.hint, gateway) or None if problem else None
    if status == _TOO_MANY_REQUESTS or status >= _SERVER_ERROR:
        is_lost = status == _BAD_GATEWAY and problem is not None and problem.code == ResponseLostError.code
        return (
            ResponseLostError(message, hint=hint) if is_lost else _unavailable_error(message, hint, headers)
        )
    if problem and (missing := _MISSING_OBJECT_ERRORS.get(problem.code)):
        return missing(f"{message} on gateway {gateway}", hint=hint)
    if status in _UNAUTHORIZED:
        return ApiRefusedError(message, hint=hint)
    if status == _CONFLICT:
        return _CONFLICT_ERRORS.get(problem.code if problem else "", ObjectConflictError)(message, hint=hint)
    if status in _INVALID_REQUEST:
        return UsageError(message, hint=hint)
    if status == _NOT_FOUND and problem is None:
        hint = "The gateway may be older than this client: update the gateway."
    is_path_missing = problem is not None and problem.code == PathNotFoundError.code
    return (PathNotFoundError if is_path_missing else ApiRequestRejectedError)(message, hint=hint)


def _unavailable_error(message: str, hint: str | None, headers: Mapping[str, str]) -> GatewayUnavailableError:
    error = GatewayUnavailableError(message, hint=hint)
    error.retry_after = parse_retry_after(headers.get("Retry-After"), headers.get("Date"))
    return error


def error_from_exception(error: Exception, endpoint: GatewayEndpoint) -> HoldfastError:
    """Translate a failed connection."""
    import aiohttp

    hint = _gateway_hint(endpoint)
    cause = getattr(error, "certificate_error", None) or getattr(error, "os_error", None) or error
    if isinstance(cause, ssl.CertificateError):
        reason = getattr(cause, "verify_message", None) or str(cause)
        if getattr(cause, "verify_code", None) in _VALIDITY_CODES:
            return _validity_error(endpoint, reason, error)
        message = f"{endpoint.url}: not the certificate of gateway {endpoint.gateway}: {reason}"
        return ApiRefusedError(message, hint=hint, cause=error)
    if is_tls_alert(error):
        return rejected_certificate_error(endpoint, error)
    if isinstance(error, ConnectFailedError | aiohttp.ClientConnectorError | aiohttp.ConnectionTimeoutError):
        message = f"gateway {endpoint.gateway} does not answer at {endpoint.url}: {_os_error_message(error)}"
        return GatewayUnreachableError(message, hint=hint, cause=error)
    message = f"gateway {endpoint.gateway}: connection lost: {_os_error_message(error)}"
    return ResponseLostError(message, hint=hint, cause=error)


def _validity_error(endpoint: GatewayEndpoint, reason: str, error: Exception) -> ApiRefusedError:
    """The error for a certificate that is expired or not valid yet, perhaps only by a wrong clock."""
    from datetime import UTC, datetime

    hint = _gateway_hint(endpoint)
    return ApiRefusedError(
        f"{endpoint.url}: the certificate of gateway {endpoint.gateway} is not valid by this machine's clock "
        f"({datetime.now(UTC):%Y-%m-%d %H:%M} UTC): {reason}",
        hint=f"Correct the clock of this machine if it is wrong. Otherwise {hint[0].lower()}{hint[1:]}",
        cause=error,
    )


def full_disk_error(error: OSError) -> DiskFullError | None:
    """The error for an endpoint that cannot be resolved because a local disk is full, or None."""
    if error.errno not in home.NO_SPACE_ERRNOS:
        return None
    return DiskFullError(f"{error.filename or home.state_dir()}: no space left on this machine")


def packing_error(report: bytes, gateway: str) -> HoldfastError:
    """Translate the report of a `tar` in a sandbox that failed after a download had started."""
    return error_from_response(_CONFLICT, report, {}, operation="download", gateway=gateway)


def rejected_certificate_error(endpoint: GatewayEndpoint, error: Exception) -> HoldfastError:
    """The error for a client certificate that the gateway rejects, perhaps by a wrong clock of its host."""
    hint = _gateway_hint(endpoint)
    alert = _tls_alert(error)
    if alert is not None and (alert.reason or "").endswith(_VALIDITY_ALERTS):
        hint = (
            f"Correct the clock of the gateway's host if it is wrong. Otherwise {hint[0].lower()}{hint[1:]}"
        )
    return ApiRefusedError(
        f"{endpoint.url}: the gateway rejects this machine's client certificate", hint=hint, cause=error
    )


def is_tls_alert(error: Exception) -> bool:
    """Whether the server ended the handshake with a TLS alert: it rejects the client certificate."""
    return _tls_alert(error) is not None


def _tls_alert(error: Exception) -> ssl.SSLError | None:
    for origin in (error, getattr(error, "os_error", None)):
        for cause in causes(origin):
            if isinstance(cause, ssl.SSLError) and "ALERT" in (cause.reason or ""):
                return cause
    return None


class ConnectFailedError(Exception):
    """The TCP connection or the TLS handshake failed: no request was sent."""

    def __init__(self, os_error: OSError) -> None:
        super().__init__(str(os_error))
        self.os_error = os_error


def connection_errors() -> tuple[type[Exception], ...]:
    """The errors of a failed connection; the HTTP libraries load only when an error has to be classified."""
    import aiohttp
    from websockets.exceptions import WebSocketException

    return (aiohttp.ClientError, WebSocketException, ConnectFailedError, OSError)


def is_disconnect(error: Exception) -> bool:
    """Whether the server closed the connection instead of answering the request."""
    import aiohttp
    from websockets.exceptions import InvalidMessage

    return isinstance(error, aiohttp.ServerDisconnectedError | InvalidMessage)


def is_connection_error(error: Exception) -> bool:
    """Whether an error inside a stream's block comes from the connection, not from the code in the block.

    asyncio raises plain ConnectionError for a write to a lost connection; the operating system raises only
    subclasses of it.
    """
    import aiohttp

    return isinstance(error, aiohttp.ClientError) or type(error) is ConnectionError


def is_retryable(error: Exception) -> bool:
    """Whether to retry a request that is safe to repeat."""
    return isinstance(error, GatewayUnreachableError | ResponseLostError | GatewayUnavailableError)


def is_retryable_unsent(error: Exception) -> bool:
    """Whether to retry a request that must not run twice, such as opening a stream."""
    # The server sends Retry-After only while nothing has started; see `holdfast.server.errors`.
    return isinstance(error, GatewayUnreachableError) or (
        isinstance(error, GatewayUnavailableError) and error.retry_after is not None
    )


def retry_after_seconds(error: Exception) -> float | None:
    """Seconds of the server's Retry-After header."""
    return error.retry_after if isinstance(error, GatewayUnavailableError) else None


def _gateway_hint(endpoint: GatewayEndpoint) -> str:
    gateway = endpoint.gateway
    return f"Run `holdfast status {gateway}` to check the gateway, or `holdfast up {gateway}` to repair it."


def _decode_problem(body: bytes) -> Problem | None:
    try:
        return msgspec.json.decode(body, type=Problem)
    except msgspec.MsgspecError:
        return None


def _os_error_message(error: Exception) -> str:
    inner = getattr(error, "os_error", None) or error
    if isinstance(inner, asyncio.TimeoutError):
        return "timed out"
    return str(getattr(inner, "strerror", None) or inner or type(inner).__name__)
