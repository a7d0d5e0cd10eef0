"""Limits for a client of the official library: no inner retries, bounded response size, bounded request time.

urllib3 retries three times by default, without backoff; that would multiply with the retries of `resilient`.
All API objects of an ApiClient share its connections, so the limits are applied to the ApiClient in place.
Its connections also save the time that limits and retries cost (decision 0011).
"""

from __future__ import annotations

import math
import os
import re
import socket
import threading
import time
from functools import cache
from http.client import HTTPMessage, HTTPResponse
from typing import TYPE_CHECKING, Any

from holdfast.errors import ResponseTooLargeError, UnreadableResponseError
from holdfast.kube.failures import SUCCESS
from holdfast.retry import clock, current_expiry

if TYPE_CHECKING:
    from collections.abc import Callable

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
_TIMEOUT_SLACK = 0.05


def clip_to_deadline(seconds: float) -> float:
    """Shorten a timeout to the current deadline; the result is always positive."""
    expires = current_expiry()
    return seconds if expires == math.inf else max(MIN_TIMEOUT, min(seconds, expires - clock.monotonic()))


# Request time ----------------------------------------------------------------------------------------------


# urllib3 creates connections and responses in the thread of the caller. It has no parameter that would pass
# a limit to them.
class _ThreadState(threading.local):
    limit: TimeLimit | None = None


_thread_state = _ThreadState()


class TimeLimit:
    """Bounds the requests that a thread makes inside `call_within`, all of them together.

    A socket timeout bounds each wait for bytes, so a server that sends single bytes could make a request last
    forever. Connections of a limited client shorten every wait to the time left, also when the response is
    read after the call. `extend` sets a new limit.
    """

    __slots__ = ("expires", "stop")

    def __init__(self, seconds: float, stop: StopEvent | None = None) -> None:
        self.expires = time.monotonic() + seconds
        self.stop = stop
        """when set, a wait for response bytes ends as if the server had closed the connection"""

    def extend(self, seconds: float) -> None:
        """Bound the reads from now on."""
        self.expires = time.monotonic() + seconds

    def time_left(self) -> float:
        return max(MIN_TIMEOUT, self.expires - time.monotonic())


def call_within(limit: TimeLimit, fn: Callable[..., Any], args: Any, kwargs: dict[str, Any]) -> Any:
    """Call a function; its requests obey the limit."""
    # Not a context manager: every request comes here, and two more calls would cost it time.
    outer, _thread_state.limit = _thread_state.limit, limit
    try:
        return fn(*args, **kwargs)
    finally:
        _thread_state.limit = outer


class _LimitedSocketIO(socket.SocketIO):
    """Reads a response from a socket within a time limit."""

    # The socket, the limit, and the timeout for a single wait.
    limits: tuple[Any, TimeLimit, float]

    def readinto(self, buffer: Any) -> int:
        (sock, limit, idle_timeout), now = self.limits, time.monotonic()
        expires = min(limit.expires, now + idle_timeout)
        while (left := expires - now) > 0:
            if limit.stop is not None:
                if limit.stop.is_set():
                    return 0
                left = min(left, clock.STOP_POLL_SECONDS)
            # Setting a timeout is a system call; a small excess is cheaper.
            if not left <= (sock.gettimeout() or math.inf) <= left + _TIMEOUT_SLACK:
                sock.settimeout(None if math.isinf(left) else left)
            try:
                # Not `super().readinto`: after one timeout, `SocketIO` rejects all further reads.
                return int(sock.recv_into(buffer))
            except TimeoutError:
                now = time.monotonic()
        raise TimeoutError("timed out")


# Nearly every response. The rest, such as chunked ones, is left to http.client.
_ORDINARY_HEAD = re.compile(rb"HTTP/1\.1 (20[01]) ([ -~]*)\r\n((?:[A-Za-z0-9-]+: [!-~][ -~]*\r\n)+)\r\n")
_FIELD = re.compile(r"([^:]+): ([^\r]+)\r\n")
_UNUSUAL_FIELDS = {"connection", "keep-alive", "proxy-connection", "transfer-encoding"}


class _LimitedResponse(HTTPResponse):
    """A response that is read within the time limit of the thread that made the request."""

    def __init__(self, sock: Any, debuglevel: int = 0, method: str | None = None) -> None:
        super().__init__(sock, debuglevel, method)
        self._may_be_ordinary = method != "HEAD" and not debuglevel
        if (limit := _thread_state.limit) is not None:
            # Changes the class of the existing reader: a second reader and buffer would cost each request
            # more than the retries do.
            reader: Any = self.fp.raw
            reader.__class__ = _LimitedSocketIO
            reader.limits = sock, limit, sock.gettimeout() or math.inf

    def begin(self) -> None:
        """Parse an ordinary head without the e-mail parser, which takes a sixth of the time of a request."""
        if self._may_be_ordinary:
            self._may_be_ordinary = False  # a second call would take the body for a head
            if (head := _ORDINARY_HEAD.match(self.fp.peek())) is not None and self._parse_head(head):
                self.fp.read(head.end())
        super().begin()  # does nothing if the head is parsed

    def _parse_head(self, head: re.Match[bytes]) -> bool:
        headers = HTTPMessage()
        for name, value in _FIELD.findall(head[3].decode()):
            headers[name] = value
        lengths = headers.get_all("Content-Length", [])
        is_unusual = not _UNUSUAL_FIELDS.isdisjoint(map(str.lower, headers.keys()))
        if is_unusual or len(lengths) != 1 or not lengths[0].isdecimal():
            return False
        self.code = self.status = int(head[1])
        self.reason, self.length = head[2].decode().strip(), int(lengths[0])
        self.version, self.chunked, self.will_close = 11, False, False
        self.headers = self.msg = headers
        return True


@cache
def _limited_pool_class(pool_class: Any) -> Any:
    """A subclass of a urllib3 pool whose connections obey the time limit of their thread."""

    class LimitedConnection(pool_class.ConnectionCls):  # type: ignore[misc]
        response_class = _LimitedResponse
        _unsent_head, _is_body_next = b"", False

        def request(self, method: str, url: str, body: Any = None, *args: Any, **kwargs: Any) -> None:
            """Send head and body together, as one packet if the body is short; urllib3 sends two."""
            self._unsent_head, self._is_body_next = b"", isinstance(body, str) and 0 < len(body) < _CHUNK
            super().request(method, url, body, *args, **kwargs)

        def send(self, data: Any) -> None:
            if self._is_body_next:
                self._unsent_head, self._is_body_next = data, False
            else:
                head, self._unsent_head = self._unsent_head, b""
                super().send(head + data if head else data)

        @property
        def timeout(self) -> Any:
            """urllib3 sets it on the socket when it connects, sends and starts to read."""
            if (limit := _thread_state.limit) is None:
                return self._timeout
            left = limit.time_left()
            return min(self._timeout, left) if isinstance(self._timeout, int | float) else left

        @timeout.setter
        def timeout(self, timeout: Any) -> None:
            self._timeout = timeout

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
    manager.key_fn_by_scheme = {
        scheme: _cached_pool_key(pool_key) for scheme, pool_key in manager.key_fn_by_scheme.items()
    }
    # Existing pools have connections of the original class.
    manager.clear()


def _cached_pool_key(pool_key: Callable[[dict[str, Any]], Any]) -> Callable[[dict[str, Any]], Any]:
    """Compute the key of a pool only when its settings change: urllib3 does it for each request."""
    last: tuple[dict[str, Any], Any] = ({}, None)

    def cached_pool_key(settings: dict[str, Any]) -> Any:
        nonlocal last
        known_settings, key = last
        if settings != known_settings:
            key = pool_key(settings)
            # One assignment: another thread reads both values or none of them.
            last = settings.copy(), key
        return key

    return cached_pool_key


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
        raw, max_bytes = response.response, _max_bytes(rest, response)
        # A compressed body can be far larger than its Content-Length.
        length = raw.length_remaining
        if length is None or length > max_bytes or "Content-Encoding" in raw.headers:
            response.read = lambda: _read_limited(response, max_bytes)
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
    return int(getattr(rest, _LIMIT_ATTRIBUTE)) if response.status in SUCCESS else MAX_ERROR_BYTES


def _read_limited(response: Any, limit: int) -> bytes:
    if response.data is None:
        raw, chunks, size = response.response, [], 0
        # One byte above the limit is enough to detect a longer body.
        while size <= limit and (chunk := raw.read(min(_CHUNK, limit + 1 - size), decode_content=True)):
            chunks.append(chunk)
            size += len(chunk)
        if size > limit:
            # The rest of the body is unread, so the connection cannot be used again.
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
            # Cancellation included: an unread response keeps its connection out of the pool.
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
    if status not in SUCCESS:
        return data[:limit]
    raise ResponseTooLargeError(f"the response is larger than {limit} bytes")
