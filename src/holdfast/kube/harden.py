"""Prepares a client of the official library: no retries of its own, and no answer larger than memory allows.

Inner retries multiply with ours and know no backoff (urllib3 makes three by default). Done to the ApiClient
in place and once, as all API objects on it share its connections. Not here: building clients (`client`).
"""

from __future__ import annotations

from typing import Any

from holdfast.errors import TemporaryError
from holdfast.kube.straight import go_straight

# Lists of a large cluster are tens of MiB; beyond this it is no Kubernetes answer any more.
LARGEST_ANSWER = 128 * 1024 * 1024
# An error is a sentence. What is longer is cut, as its status has already said what it means.
LARGEST_ERROR = 64 * 1024
_CHUNK = 1024 * 1024
_MARK = "_holdfast_bounds"
_SUCCESS = range(200, 300)


class Bounds:
    """What one client may read; looked up with each answer, so that it can be changed later."""

    __slots__ = ("largest",)

    def __init__(self, largest: int) -> None:
        self.largest = largest


class UnreadableAnswerError(TemporaryError):
    """The server said yes, and what followed was no Kubernetes object."""

    code = "unreadable-answer"


class AnswerTooLargeError(TemporaryError):
    """The answer was larger than any answer should be; reading was stopped."""

    code = "answer-too-large"


def harden(api_client: Any, *, largest: int | None = None) -> None:
    """Switch off inner retries and bound what an answer may take; a second time changes the bound only."""
    bounds = getattr(api_client, _MARK, None)
    if bounds is not None:
        bounds.largest = bounds.largest if largest is None else largest
        return
    bounds = Bounds(LARGEST_ANSWER if largest is None else largest)
    rest, configuration = api_client.rest_client, api_client.configuration
    configuration.retries = False
    configuration.client_go_retries = False
    is_async = hasattr(rest, "ssl_context")
    if is_async:
        rest._effective_retry_options = None  # noqa: SLF001 - no public way to switch it off afterwards
    else:
        rest.pool_manager.connection_pool_kw["retries"] = _no_retries()
        rest.pool_manager.clear()
        go_straight(rest.pool_manager)
    rest.request = _bounded_async(rest, bounds) if is_async else _bounded(rest.request, bounds)
    api_client.response_deserialize = _readable(api_client.response_deserialize)
    setattr(api_client, _MARK, bounds)


def _no_retries() -> Any:
    """What urllib3 makes of `retries=False`; given the word, it would make it anew for each request."""
    from urllib3 import Retry

    return Retry.from_int(retries=False, redirect=False)


def _readable(deserialize: Any) -> Any:
    """An answer that the client's models refuse is no mistake of the caller, and must not be quoted."""

    def readable(*args: Any, **kwargs: Any) -> Any:
        try:
            return deserialize(*args, **kwargs)
        except Exception as error:
            if hasattr(error, "status"):  # the server's own refusal, as the client raises it
                raise
        # Outside of `except`: else the models' error, with the body in it, would hang on to this one.
        raise UnreadableAnswerError("the server said yes, but what followed is no such object")

    return readable


def _bounded(request: Any, bounds: Bounds) -> Any:
    def bounded(*args: Any, **kwargs: Any) -> Any:
        response = request(*args, **kwargs)
        # One that says itself that it fits is left to its own `read`: the quickest, and nothing to hold it.
        if not _is_small(response.response, limit := _limit(response, bounds)):
            response.read = lambda: _read(response, limit)
        return response

    return bounded


def _bounded_async(rest: Any, bounds: Bounds) -> Any:
    request = rest.request

    async def bounded(*args: Any, **kwargs: Any) -> Any:
        if rest.pool_manager is None:
            rest.pool_manager = rest._create_pool_manager()  # noqa: SLF001 - as its own request() would
        # aiohttp makes GET, PUT and DELETE again by itself when a kept connection turns out to be closed.
        rest.pool_manager._retry_connection = False  # noqa: SLF001
        response = await request(*args, **kwargs)

        async def read() -> bytes:
            return await _aread(response, _limit(response, bounds))

        response.read = read
        return response

    return bounded


def _limit(response: Any, bounds: Bounds) -> int:
    return bounds.largest if response.status in _SUCCESS else LARGEST_ERROR


def _is_small(raw: Any, limit: int) -> bool:
    """Whether the answer says itself that it fits; urllib3 knows no length of one that comes in chunks."""
    length = raw.length_remaining
    return length is not None and length <= limit and "Content-Encoding" not in raw.headers


def _read(response: Any, limit: int) -> bytes:
    if response.data is None:
        raw, chunks, size = response.response, [], 0
        while size <= limit and (chunk := raw.read(min(_CHUNK, limit + 1 - size), decode_content=True)):
            chunks.append(chunk)
            size += len(chunk)
        if size > limit:
            raw.close()
        else:
            raw.release_conn()
        response.data = _checked(b"".join(chunks), limit, response.status)
    return bytes(response.data)


async def _aread(response: Any, limit: int) -> bytes:
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
        response.data = _checked(b"".join(chunks), limit, response.status)
    return bytes(response.data)


def _checked(data: bytes, limit: int, status: int) -> bytes:
    if len(data) <= limit:
        return data
    if status not in _SUCCESS:
        return data[:limit]
    raise AnswerTooLargeError(f"the answer was larger than {limit} bytes and was not read on")
