"""What went wrong between here and a gateway's API, in the words of our own tree.

By its status first: the body's code is for people and logs. What may be sent again is said here too, once.
Not here: sending anything.
"""

from __future__ import annotations

import asyncio
import shlex
import ssl
from typing import TYPE_CHECKING

import aiohttp
import msgspec

from holdfast.errors import (
    ClusterRefusedError,
    HoldfastError,
    ObjectConflictError,
    SandboxMissingError,
    TemporaryError,
    UsageError,
)
from holdfast.kube.reach import ApiRefusedError, ApiUnreachableError
from holdfast.retry import parse_retry_after
from holdfast.sandbox.wire import Problem

if TYPE_CHECKING:
    from collections.abc import Mapping

    from holdfast.sandbox.sdk.access import Access

_FORBIDDEN, _MISSING, _CONFLICT, _BUSY, _BROKEN, _LOST = (401, 403), 404, 409, 429, 500, 502
_WRONG = (400, 413, 422)
_SANDBOX_MISSING = "sandbox-missing"


class NotReachedError(ApiUnreachableError):
    """The request did not get as far as the gateway: nothing has happened, whatever it asked for."""

    code = "gateway-unreachable"


class AnswerLostError(ApiUnreachableError):
    """The request may have been carried out, but its answer was cut off or did not come."""

    code = "answer-lost"


class ServerTroubleError(TemporaryError):
    """The gateway's API answered that it cannot just now; `after` are the seconds it asks for."""

    code = "gateway-trouble"
    after: float | None = None


class GoneMeanwhileError(SandboxMissingError):
    """It is not there, and an earlier attempt whose answer was lost may be why."""


def from_answer(status: int, body: bytes, headers: Mapping[str, str], *, what: str) -> HoldfastError:
    """The error that an answer other than success stands for."""
    problem = _problem(body)
    message = problem.message if problem else f"{what}: the gateway's API answers HTTP {status}"
    hint = (problem.hint or None) if problem else None
    if status == _BUSY or status >= _BROKEN:
        is_lost = status == _LOST and problem is not None and problem.code == AnswerLostError.code
        return AnswerLostError(message, hint=hint) if is_lost else _trouble(message, hint, headers)
    if status == _MISSING and problem and problem.code == _SANDBOX_MISSING:
        return SandboxMissingError(message, hint=hint)
    if status in _FORBIDDEN:
        return ApiRefusedError(message, hint=hint)
    if status == _CONFLICT:
        return ObjectConflictError(message, hint=hint)
    if status in _WRONG:
        return UsageError(message, hint=hint)
    if status == _MISSING and problem is None:
        hint = "The gateway may be older than this client: `holdfast up` brings it to the same version."
    return ClusterRefusedError(message, hint=hint)


def _trouble(message: str, hint: str | None, headers: Mapping[str, str]) -> ServerTroubleError:
    trouble = ServerTroubleError(message, hint=hint)
    trouble.after = parse_retry_after(headers.get("Retry-After"), headers.get("Date"))
    return trouble


def from_failure(error: Exception, access: Access) -> HoldfastError:
    """The error that a failed connection stands for."""
    hint = _hint(access)
    if isinstance(error, ssl.CertificateError | aiohttp.ClientConnectorCertificateError):
        why = getattr(error, "verify_message", None) or str(getattr(error, "certificate_error", error))
        return ApiRefusedError(f"{access.url} is not the expected gateway: {why}", hint=hint, cause=error)
    if is_tls_refusal(error):
        return certificate_refused(access, error)
    if isinstance(error, aiohttp.ClientConnectorError | aiohttp.ConnectionTimeoutError):
        why = _os_words(error)
        return NotReachedError(
            f"gateway {access.gateway} does not answer at {access.url}: {why}", hint=hint, cause=error
        )
    return AnswerLostError(
        f"the connection to gateway {access.gateway} was cut: {_os_words(error)}", hint=hint, cause=error
    )


def download_cut(error: AnswerLostError, sandbox: str, path: str) -> AnswerLostError:
    """The same for a download that had begun: `tar` that cannot read all of it ends it in this way, too."""
    # Not into /dev/null over there: `tar` opens no file for that.
    look = shlex.join(["holdfast", "sandbox", "exec", sandbox, "--", "tar", "-cf", "-", path])
    return AnswerLostError(
        f"the download of {path} from sandbox {sandbox} broke off: {error.message}",
        hint=f"Perhaps the sandbox's user may not read all that is in it: `{look} >/dev/null` names what. "
        f"If it names nothing: {error.hint[:1].lower()}{error.hint[1:]}",
    )


def certificate_refused(access: Access, error: Exception) -> HoldfastError:
    """The gateway does not take the certificate that was shown."""
    return ApiRefusedError(
        f"{access.url} does not take this machine's client certificate", hint=_hint(access), cause=error
    )


def is_tls_refusal(error: BaseException | None) -> bool:
    """Whether the other side ended the connection over our certificate."""
    seen = 0
    while error is not None and seen < _DEEPEST:
        if isinstance(error, ssl.SSLError) and "ALERT" in (error.reason or ""):
            return True
        inner = getattr(error, "os_error", None)
        error = inner if isinstance(inner, BaseException) else (error.__cause__ or error.__context__)
        seen += 1
    return False


_DEEPEST = 8

FAILURES: tuple[type[Exception], ...] = (aiohttp.ClientError, asyncio.TimeoutError, OSError)
"""What the library raises when a connection fails."""


def is_of_the_connection(error: Exception) -> bool:
    """Whether an error that comes out of an open stream is the stream's own; a full disk there is its user's.

    A write that waits while the connection is lost ends in a bare ConnectionError; the system's never are.
    """
    return isinstance(error, aiohttp.ClientError) or type(error) is ConnectionError


def may_be_sent_again(error: Exception) -> bool:
    """For requests that may safely arrive twice."""
    return isinstance(error, NotReachedError | AnswerLostError | ServerTroubleError)


def was_not_carried_out(error: Exception) -> bool:
    """For requests that may not arrive twice, such as the opening of a stream."""
    return isinstance(error, NotReachedError) or (
        isinstance(error, ServerTroubleError) and error.after is not None
    )


def asked_wait(error: Exception) -> float | None:
    """How many seconds the server asked to be left alone."""
    return error.after if isinstance(error, ServerTroubleError) else None


def _hint(access: Access) -> str:
    return f"See `holdfast status {access.gateway}`; `holdfast up {access.gateway}` brings it back."


def _problem(body: bytes) -> Problem | None:
    try:
        return msgspec.json.decode(body, type=Problem)
    except msgspec.MsgspecError:
        return None


def _os_words(error: Exception) -> str:
    inner = getattr(error, "os_error", None) or error
    if isinstance(inner, asyncio.TimeoutError):
        return "no answer in time"
    return str(getattr(inner, "strerror", None) or inner or type(inner).__name__)
