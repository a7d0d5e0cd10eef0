"""Limits for a client of the official library: no inner retries, bounded response size, bounded request time.

urllib3 retries three times by default, without backoff; that would multiply with the retries of `resilient`.
All API objects of an ApiClient share its connections, so the limits are applied to the ApiClient in place.
"""

from __future__ import annotations

import io
import math
import os
import threading
import time
from functools import cache
from http.client import HTTPResponse
from typing import TYPE_CHECKING, Any, Self

from holdfast.errors import ResponseTooLargeError, UnreadableResponseError
from holdfast.retry import current_deadline

if TYPE_CHECKING:
    from holdfast.retry import StopEvent

MAX_RESPONSE_BYTES = 128 * 1024 * 1024
"""Lists of a large cluster are tens of MiB."""
MAX_ERROR_BYTES = 64 * 1024
"""Longer error bodies are truncated: the HTTP status already classifies the failure."""
MIN_TIMEOUT = 0.001
"""urllib3 and sockets interpret a timeout of zero as "no timeout" or "non-blocking"."""
_CHUNK = 1024 * 1024
_MAX_POOLS = 10
_LIMIT_ATTRIBUTE = "_holdfast_max_response_bytes"
_STOP_POLL_SECONDS = 0.02
_TIMEOUT_SLACK = 0.05
_SUCCESS = range(200, 300)


def clip_to_deadline(seconds: float) -> float:
    """Shorten a timeout to the current deadline; the result is always positive."""
    deadline = current_deadline()
    return seconds if deadline is None else max(MIN_TIMEOUT, deadline.clip(seconds))


# Request time ----------------------------------------------------------------------------------------------


class _ThreadState(threading.local):
    limit: TimeLimit | None = None


_thread_state = _ThreadState()


class TimeLimit:
    """`with TimeLimit(30):` bounds the requests that this thread makes in the block, all of them together.

    A socket timeout bounds each wait for bytes, so a server that sends single bytes could make a request last
    forever. Connections of a limited client shorten every wait to the time left. The limit ends with the
    block: a response that is read later has only the socket timeout, unless `extend` sets a new limit.
    """

    __slots__ = ("_outer", "expires", "stop")

    def __init__(self, seconds: float, stop: StopEvent | None = None) -> None:
        self.expires = time.monotonic() + seconds
        self.stop = stop
        """when set, a wait for response bytes ends as if the server had closed the connection"""

    def __enter__(self) -> Self:
        self._outer, _thread_state.limit = _thread_state.limit, self
        return self

    def __exit__(self, *_error: object) -> None:
        _thread_state.limit = self._outer
        self.expires = math.inf

    def extend(self, seconds: float) -> None:
        """Bound the reads from now on."""
        self.expires = time.monotonic() + seconds

    def time_left(self) -> float:
        return max(MIN_TIMEOUT, self.expires - time.monotonic())


class _LimitedReader(io.RawIOBase):
    """Reads a response from a socket within a time limit."""

    def __init__(self, raw: io.RawIOBase, sock: Any, limit: TimeLimit) -> None:
        self._raw, self._sock, self._limit = raw, sock, limit
        timeout = sock.gettimeout()
        self._idle_timeout = self._socket_timeout = math.inf if timeout is None else timeout

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        limit, now = self._limit, time.monotonic()
        expires = min(limit.expires, now + self._idle_timeout)
        while (left := expires - now) > 0:
            if limit.stop is not None:
                if limit.stop.is_set():
                    return 0
                left = min(left, _STOP_POLL_SECONDS)
            # Setting a timeout is a system call; a small excess is cheaper.
            if not left <= self._socket_timeout <= left + _TIMEOUT_SLACK:
                self._sock.settimeout(None if math.isinf(left) else left)
                self._socket_timeout = left
            try:
                return int(self._sock.recv_into(buffer))
            except TimeoutError:
                now = time.monotonic()
        raise TimeoutError("timed out")

    def close(self) -> None:
        # `_raw` holds a reference that keeps the socket open after the connection has been closed.
        self._raw.close()
        super().close()


class _LimitedResponse(HTTPResponse):
    """A response that is read within the time limit of the thread that made the request."""

    def __init__(self, sock: Any, *args: Any, **kwargs: Any) -> None:
        super().__init__(sock, *args, **kwargs)
        if _thread_state.limit is not None:
            self.fp = io.BufferedReader(_LimitedReader(self.fp.detach(), sock, _thread_state.limit))


@cache
def _limited_pool_class(pool_class: Any) -> Any:
    """A subclass of a urllib3 pool whose connections obey the time limit of their thread."""

    class LimitedConnection(pool_class.ConnectionCls):  # type: ignore[misc]
        response_class = _LimitedResponse
        timeout: Any

        def connect(self) -> None:
            if (limit := _thread_state.limit) is not None:
                left = limit.time_left()
                self.timeout = min(self.timeout, left) if isinstance(self.timeout, int | float) else left
            super().connect()

        def _new_conn(self) -> Any:
            """Give the TLS handshake, which follows, what is left of the time.

            Private in urllib3: without it the handshake has the connect timeout once more.
            """
            sock = super()._new_conn()
            if _thread_state.limit is not None:
                sock.settimeout(_thread_state.limit.time_left())
            return sock

    # The original name appears in urllib3's error messages.
    return type(pool_class.__name__, (pool_class,), {"ConnectionCls": LimitedConnection})


# Applying all limits ---------------------------------------------------------------------------------------


def apply_client_limits(api_client: Any, *, max_response_bytes: int | None = None) -> None:
    """Disable inner retries of an ApiClient and bound its responses.

    A second call only changes the size limit.
    """
    rest, configuration = api_client.rest_client, api_client.configuration
    is_limited = hasattr(rest, _LIMIT_ATTRIBUTE)
    if max_response_bytes is not None or not is_limited:
        # Read for each response, so that it can be changed later.
        setattr(rest, _LIMIT_ATTRIBUTE, max_response_bytes or MAX_RESPONSE_BYTES)
    if is_limited:
        return
    configuration.retries = False
    configuration.client_go_retries = False
    if is_async_client(api_client):
        if hasattr(rest, "_effective_retry_options"):  # read by aiohttp-retry at each request
            rest._effective_retry_options = None  # noqa: SLF001 - set once in the constructor
        rest.request = _limit_async_responses(rest)
    else:
        _limit_pool_manager(rest.pool_manager)
        rest.request = _limit_sync_responses(rest)
    api_client.response_deserialize = _wrap_deserializer(api_client.response_deserialize)


def is_async_client(api_client: Any) -> bool:
    """Whether this is a client of `kubernetes.aio`."""
    return hasattr(api_client.rest_client, "ssl_context")


def _limit_pool_manager(manager: Any) -> None:
    from urllib3 import Retry

    manager.connection_pool_kw["retries"] = Retry.from_int(retries=False, redirect=False)
    manager.pool_classes_by_scheme = {
        scheme: _limited_pool_class(pool_class)
        for scheme, pool_class in manager.pool_classes_by_scheme.items()
    }
    manager.clear()


def _wrap_deserializer(deserialize: Any) -> Any:
    """Translate what the client's models raise: it is not the caller's mistake, and may quote a secret."""

    def deserialize_or_translate(*args: Any, **kwargs: Any) -> Any:
        try:
            return deserialize(*args, **kwargs)
        except Exception as error:
            if hasattr(error, "status"):  # an ApiException: the server rejected the request
                raise
        # Raised outside `except`: as its context, the original error would keep the response body alive.
        raise UnreadableResponseError("HTTP success, but the response is not the expected object")

    return deserialize_or_translate


def _limit_sync_responses(rest: Any) -> Any:
    request, manager, owner = rest.request, rest.pool_manager, os.getpid()

    def request_with_limits(*args: Any, **kwargs: Any) -> Any:
        nonlocal owner
        if owner != os.getpid():
            # A forked child must not write to the connections of its parent, nor wait for their locks.
            owner, manager.pools = os.getpid(), type(manager.pools)(_MAX_POOLS)
        response = request(*args, **kwargs)
        limit = _max_bytes(rest, response)
        if not _fits_limit(response.response, limit):
            response.read = lambda: _read_limited(response, limit)
        return response

    return request_with_limits


def _limit_async_responses(rest: Any) -> Any:
    request = rest.request

    async def request_with_limits(*args: Any, **kwargs: Any) -> Any:
        aiohttp_session(rest)
        response = await request(*args, **kwargs)
        response.read = lambda: _read_limited_async(response, _max_bytes(rest, response))
        return response

    return request_with_limits


def aiohttp_session(rest: Any) -> Any:
    """The aiohttp session of an async client's `rest_client`, without inner retries; created on first use."""
    if rest.pool_manager is None and hasattr(rest, "_create_pool_manager"):
        rest.pool_manager = rest._create_pool_manager()  # noqa: SLF001 - as its request() does
    # aiohttp repeats GET, PUT and DELETE without backoff when a pooled connection was closed.
    if hasattr(rest.pool_manager, "_retry_connection"):
        rest.pool_manager._retry_connection = False  # noqa: SLF001
    return rest.pool_manager


def _max_bytes(rest: Any, response: Any) -> int:
    return int(getattr(rest, _LIMIT_ATTRIBUTE)) if response.status in _SUCCESS else MAX_ERROR_BYTES


def _fits_limit(raw: Any, limit: int) -> bool:
    """Whether the Content-Length is known and within the limit."""
    length = raw.length_remaining
    return length is not None and length <= limit and "Content-Encoding" not in raw.headers


def _read_limited(response: Any, limit: int) -> bytes:
    if response.data is None:
        raw, chunks, size = response.response, [], 0
        while size <= limit and (chunk := raw.read(min(_CHUNK, limit + 1 - size), decode_content=True)):
            chunks.append(chunk)
            size += len(chunk)
        if size > limit:
            raw.close()
        else:
            raw.release_conn()
        response.data = _enforce_limit(b"".join(chunks), limit, response.status)
    return bytes(response.data)


async def _read_limited_async(response: Any, limit: int) -> bytes:
    if response.data is None:
        raw, chunks, size = response.response, [], 0
        try:
            while size <= limit and (chunk := await raw.content.read(min(_CHUNK, limit + 1 - size))):
                chunks.append(chunk)
                size += len(chunk)
        except BaseException:
            raw.close()
            raise
        if size > limit:
            raw.close()
        else:
            raw.release()
        response.data = _enforce_limit(b"".join(chunks), limit, response.status)
    return bytes(response.data)


def _enforce_limit(data: bytes, limit: int, status: int) -> bytes:
    if len(data) <= limit:
        return data
    if status not in _SUCCESS:
        return data[:limit]
    raise ResponseTooLargeError(f"the response is larger than {limit} bytes")
