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
from holdfast.retry import causes


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
    """What the chain behind `error` tells; a certificate that is not trusted outweighs all else."""
    chain = list(causes(error))
    if any(_is_untrusted(each) for each in chain):
        return Trace.NEVER
    found = {seen for each in chain if (seen := _one(each)) is not None}
    for outcome in (Trace.NOT_SENT, Trace.LOST, Trace.GARBLED):
        if outcome in found:
            return outcome
    return Trace.NEVER


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
    names = {
        kind.__name__ for kind in type(error).__mro__ if kind.__module__.partition(".")[0] in _KNOWN_HOMES
    }
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
