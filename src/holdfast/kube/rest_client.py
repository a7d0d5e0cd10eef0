"""Raw requests through a client of the official library: JSON objects, and streams of watch events.

Uses the address, TLS and credentials of the client but not its models, so that it works with any kind.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from importlib import import_module
from typing import TYPE_CHECKING, Any

from holdfast.errors import UnreadableResponseError
from holdfast.kube.client_limits import TimeLimit, call_within
from holdfast.kube.failures import SUCCESS
from holdfast.kube.retry_table import ApiMethod, Verb
from holdfast.retry import clock

if TYPE_CHECKING:
    from holdfast.retry import StopEvent

_MAX_EVENT_BYTES = 32 * 1024 * 1024
_CHUNK_BYTES = 64 * 1024
_MAX_STREAM_SECONDS = 24 * 3600.0


@dataclass(frozen=True, slots=True)
class ApiRequest:
    """One request to the API server."""

    verb: Verb
    path: str
    resource: str
    http_method: str = "GET"
    query: dict[str, Any] = field(default_factory=dict)
    body: Any = None
    content_type: str = "application/json"
    returns_object: bool = True
    """whether the response is a Kubernetes object, with kind and metadata"""

    @property
    def method(self) -> ApiMethod:
        return ApiMethod(self.verb, self.resource)


def _request_arguments(request: ApiRequest) -> dict[str, Any]:
    headers = {"Accept": "application/json"}
    if request.body is not None:
        headers["Content-Type"] = request.content_type
    return {
        "method": request.http_method,
        "resource_path": request.path,
        "query_params": [(key, value) for key, value in request.query.items() if value is not None],
        "header_params": headers,
        "body": request.body,
        "auth_settings": ["BearerToken"],
    }


def _is_kubernetes_object(parsed: dict[str, Any]) -> bool:
    return isinstance(parsed.get("kind"), str) and _has_valid_metadata(parsed)


def _has_valid_metadata(obj: dict[str, Any]) -> bool:
    """Whether `metadata`, if present, is a mapping; callers rely on it."""
    return isinstance(obj.get("metadata", {}), dict)


def _parse_json(data: bytes) -> Any:
    """Parse JSON; None if it is invalid."""
    try:
        return json.loads(data)
    except (ValueError, RecursionError):
        return None


class RestClient:
    """Sends requests through a `kubernetes.client.ApiClient`; its coroutines block and never suspend."""

    _library = "kubernetes.client"

    def __init__(self, api_client: Any) -> None:
        self.api_client = api_client

    async def send(self, request: ApiRequest, timeout: float) -> dict[str, Any]:  # noqa: ASYNC109
        """Send a request and return the object in the response, all within `timeout` seconds."""
        serialized = self.api_client.param_serialize(**_request_arguments(request))
        options = {"_request_timeout": timeout}
        response = call_within(TimeLimit(timeout), self.api_client.call_api, serialized, options)
        return self._parse_object(request, response, response.read())

    async def stream(
        self, request: ApiRequest, timeouts: tuple[float, float], stop: StopEvent | None
    ) -> EventStream:
        """Open a watch; setting `stop` ends the stream. The timeouts: to connect, and to wait for bytes."""
        serialized = self.api_client.param_serialize(**_request_arguments(request))
        # Bounds everything up to the response headers; `EventStream.next` sets a new limit for each event.
        limit = TimeLimit(sum(timeouts), stop=stop)
        response = call_within(limit, self.api_client.call_api, serialized, {"_request_timeout": timeouts})
        if response.status not in SUCCESS:
            self._parse_object(request, response, response.read())
        return EventStream(response.response, limit)

    def _parse_object(self, request: ApiRequest, response: Any, data: bytes) -> dict[str, Any]:
        """Parse a response; raise an ApiException for an HTTP error."""
        if response.status not in SUCCESS:
            failure = import_module(f"{self._library}.exceptions").ApiException
            raise failure.from_response(http_resp=response, body=data.decode("utf-8", "replace"), data=None)
        # The JSON error is not chained: it would keep the whole response alive.
        parsed = _parse_json(data)
        if isinstance(parsed, dict) and (not request.returns_object or _is_kubernetes_object(parsed)):
            return parsed
        raise UnreadableResponseError(f"HTTP {response.status}, but the response is not a Kubernetes object")


class AsyncRestClient(RestClient):
    """Sends requests through a `kubernetes.aio.client.ApiClient`."""

    _library = "kubernetes.aio.client"

    async def send(self, request: ApiRequest, timeout: float) -> dict[str, Any]:  # noqa: ASYNC109
        serialized = await self.api_client.param_serialize(**_request_arguments(request))
        response = await self.api_client.call_api(*serialized, _request_timeout=timeout)
        return self._parse_object(request, response, await response.read())

    async def stream(
        self, request: ApiRequest, timeouts: tuple[float, float], stop: StopEvent | None
    ) -> EventStream:
        from asyncio import timeout

        from aiohttp import ClientTimeout

        serialized = await self.api_client.param_serialize(**_request_arguments(request))
        # A single number would bound the whole stream.
        read_timeout = ClientTimeout(total=None, sock_read=timeouts[1])
        async with timeout(sum(timeouts)):
            response = await self.api_client.call_api(*serialized, _request_timeout=read_timeout)
            if response.status not in SUCCESS:
                self._parse_object(request, response, await response.read())
        return AsyncEventStream(response.response, stop)


class EventStream:
    """Watch events from a urllib3 response."""

    def __init__(self, raw: Any, limit: TimeLimit | None = None) -> None:
        self._raw, self._limit = raw, limit
        self._buffer = bytearray()

    async def next(self, seconds: float) -> dict[str, Any] | None:
        """The next event; None at the end of the stream, or as soon as `stop` is set.

        Raises:
            TimeoutError: The event is not complete after that many seconds.
        """
        if self._limit is not None:
            self._limit.extend(seconds)
        while (event := self._next_buffered_event()) is None:
            chunk = await self._read_chunk()
            if not chunk:
                return None
            self._buffer += chunk
        return event

    async def _read_chunk(self) -> bytes:
        # `read1` returns what has arrived. `read` would wait for a full chunk and delay events.
        try:
            return bytes(self._raw.read1(_CHUNK_BYTES))
        except Exception:
            # `stop` ends the wait like a closed connection, which is an error inside a chunked response.
            if self._limit is None or self._limit.stop is None or not self._limit.stop.is_set():
                raise
            return b""

    def _next_buffered_event(self) -> dict[str, Any] | None:
        while (end := self._buffer.find(b"\n")) >= 0:
            line = bytes(self._buffer[:end])
            del self._buffer[: end + 1]
            if line.strip():
                return _parse_event(line)
        # A server that never sends a newline must not fill the memory.
        if len(self._buffer) > _MAX_EVENT_BYTES:
            raise UnreadableResponseError("a watch event exceeds the size limit")
        return None

    def close(self) -> None:
        self._raw.close()


class AsyncEventStream(EventStream):
    """Watch events from an aiohttp response."""

    def __init__(self, raw: Any, stop: StopEvent | None) -> None:
        super().__init__(raw)
        self._stop = stop

    async def next(self, seconds: float) -> dict[str, Any] | None:
        from asyncio import timeout

        async with timeout(seconds):
            return await super().next(seconds)

    async def _read_chunk(self) -> bytes:
        """Read the next bytes; empty at the end of the stream or if `stop` is set first."""
        if self._stop is None:
            return bytes(await self._raw.content.readany())
        import asyncio

        reading = asyncio.ensure_future(self._raw.content.readany())
        stopping = asyncio.ensure_future(clock.asleep(_MAX_STREAM_SECONDS, self._stop))
        try:
            await asyncio.wait({reading, stopping}, return_when=asyncio.FIRST_COMPLETED)
            return bytes(reading.result()) if reading.done() else b""
        finally:
            # `asyncio.wait` does not cancel its tasks, neither at its end nor when it is cancelled itself.
            reading.cancel()
            stopping.cancel()


def _parse_event(line: bytes) -> dict[str, Any]:
    event: Any = _parse_json(line)
    obj = event.get("object") if isinstance(event, dict) else None
    if not isinstance(obj, dict) or not isinstance(event.get("type"), str) or not _has_valid_metadata(obj):
        raise UnreadableResponseError("a watch event is not valid")
    return dict(event)
