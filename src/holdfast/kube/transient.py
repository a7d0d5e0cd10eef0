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
# Of whom the names above are taken at their word; a user's own TimeoutError-like class is not.
_KNOWN_HOMES = ("urllib3", "aiohttp", "http", "json", "asyncio", "builtins", "holdfast", "socket")


def trace(error: BaseException) -> Trace:
    """What the chain behind `error` tells; a certificate that is not trusted outweighs all else.

    "Not sent" is believed of the client's own word for it, which wraps the timeout or reset of a connection
    that did not come about. Further down it yields to whatever says that something was sent.
    """
    chain = list(own_causes(error))
    if any(_is_untrusted(each) for each in chain):
        return Trace.NEVER
    found = [(each, seen) for each in chain if (seen := _one(each)) is not None]
    if found and found[0][1] is Trace.NOT_SENT and _known_names(found[0][0]) & _NOT_SENT_TYPES:
        return Trace.NOT_SENT
    told = {seen for _, seen in found}
    return next((each for each in (Trace.LOST, Trace.GARBLED, Trace.NOT_SENT) if each in told), Trace.NEVER)


def _is_untrusted(error: BaseException) -> bool:
    if isinstance(error, ssl.SSLCertVerificationError):
        return True
    return isinstance(error, ssl.SSLError) and not isinstance(
        error,
        # An unfinished handshake says nothing about the certificate; asyncio leaves the last two in context.
        ssl.SSLEOFError
        | ssl.SSLZeroReturnError
        | ssl.SSLSyscallError
        | ssl.SSLWantReadError
        | ssl.SSLWantWriteError,
    )


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
