"""Says of an error without an HTTP status whether the request can have reached the server.

Reads types and errno values along the whole cause chain, by name, so that neither urllib3 nor aiohttp need be
imported. Not here: answers with a status (`outcome`).
"""

from __future__ import annotations

import errno
import socket
import ssl
from enum import Enum

from holdfast.errors import HoldfastError
from holdfast.kube.chain import own_causes


class Trace(Enum):
    """What a cause chain tells."""

    NOT_SENT = "not sent"
    LOST = "lost"
    """sent, or partly sent; no answer, or not all of it"""
    GARBLED = "garbled"
    """answered, but nobody can read it"""
    NEVER = "never"
    """trying again gives the same: a certificate that is not trusted, a mistake in the call"""


_NO_WAY_THERE = {errno.ECONNREFUSED, errno.ENETUNREACH, errno.EHOSTUNREACH, errno.ENETDOWN, errno.EHOSTDOWN}
_CUT = {errno.ECONNRESET, errno.EPIPE, errno.ETIMEDOUT, errno.ECONNABORTED}
_NOT_SENT_TYPES = {
    "NewConnectionError",
    "ConnectTimeoutError",
    "NameResolutionError",
    "ConnectionTimeoutError",
    "ClientConnectorError",
    "ClientConnectorDNSError",
    "ClientProxyConnectionError",
}
_LOST_TYPES = {
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
}
_GARBLED_TYPES = {
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
    "AnswerTooLargeError",
    "UnreadableAnswerError",
    "HTTPException",
}
# In what OpenSSL says of a handshake that would fail again: TLS 1.3 refuses a client after its request.
_DISTRUST = (
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
# Of whom the names above are taken at their word; a user's own TimeoutError-like class is not.
_KNOWN_HOMES = ("urllib3", "aiohttp", "http", "json", "asyncio", "builtins", "holdfast", "socket")


def trace(error: BaseException) -> Trace:
    """What the chain behind `error` tells; a certificate that is not trusted outweighs all else.

    "Not sent" is believed of the client's own word for it, which wraps the timeout or reset of a connection
    that did not come about. Further down it yields to whatever says that something was sent.
    """
    chain = list(own_causes(error))
    if any(map(_tells_distrust, chain)):
        return Trace.NEVER
    found = [(each, seen) for each in chain if (seen := _one(each)) is not None]
    if found and found[0][1] is Trace.NOT_SENT and _known_names(found[0][0]) & _NOT_SENT_TYPES:
        return Trace.NOT_SENT
    told = {seen for _, seen in found}
    return next((each for each in (Trace.LOST, Trace.GARBLED, Trace.NOT_SENT) if each in told), Trace.NEVER)


def is_untrusted(error: BaseException) -> bool:
    """Whether this came of certificates."""
    return any(map(_tells_distrust, own_causes(error)))


def _tells_distrust(error: BaseException) -> bool:
    """Whether the two ends do not trust each other; a record that came damaged says nothing about that."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return True
    if not isinstance(error, ssl.SSLError):
        return False
    if getattr(error, "library", "SSL") not in {None, "", "SSL"}:
        return True  # a certificate or key of our own that cannot be read
    reason = getattr(error, "reason", None) or ""
    return any(word in reason for word in _DISTRUST)


def _one(error: BaseException) -> Trace | None:
    if isinstance(error, HoldfastError):
        # Ours are no transport errors, even where they are builtin ones too, but for those about the answer.
        return Trace.GARBLED if type(error).__name__ in _GARBLED_TYPES else None
    names = _known_names(error)
    if isinstance(error, socket.gaierror | ConnectionRefusedError) or names & _NOT_SENT_TYPES:
        return Trace.NOT_SENT
    if isinstance(error, OSError):
        if error.errno in _NO_WAY_THERE:
            return Trace.NOT_SENT
        if error.errno in _CUT or isinstance(error, ConnectionError | TimeoutError | ssl.SSLError):
            return Trace.LOST
    if names & _LOST_TYPES:
        return Trace.LOST
    return Trace.GARBLED if names & _GARBLED_TYPES else None


def _known_names(error: BaseException) -> set[str]:
    return {
        kind.__name__ for kind in type(error).__mro__ if kind.__module__.partition(".")[0] in _KNOWN_HOMES
    }
