"""Raw requests over a client of the official library: plain JSON objects in and out, streams of watch events.

The client brings address, TLS and credentials; its models are not used, so that any kind of object goes. Not
here: which requests to make, and what to do when they fail.
"""

from __future__ import annotations

import asyncio
import json
import math
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from holdfast.kube.curfew import Curfew, within
from holdfast.kube.harden import UnreadableAnswerError
from holdfast.kube.verbs import Method, Verb
from holdfast.retry import clock

if TYPE_CHECKING:
    from holdfast.retry.clock import Stop

_SUCCESS = range(200, 300)
_LONGEST_LINE = 32 * 1024 * 1024
_CHUNK = 64 * 1024
_FOREVER = 24 * 3600.0


@dataclass(frozen=True, slots=True)
class Request:
    """One request to the API server."""

    verb: Verb
    path: str
    resource: str
    http: str = "GET"
    query: dict[str, Any] = field(default_factory=dict)
    body: Any = None
    content_type: str = "application/json"

    @property
    def method(self) -> Method:
        return Method(self.verb, self.resource)


def _arguments(request: Request) -> dict[str, Any]:
    headers = {"Accept": "application/json"}
    if request.body is not None:
        headers["Content-Type"] = request.content_type
    return {
        "method": request.http,
        "resource_path": request.path,
        "query_params": [(key, value) for key, value in request.query.items() if value is not None],
        "header_params": headers,
        "body": request.body,
        "auth_settings": ["BearerToken"],
    }


def _object(client_module: str, response: Any, data: bytes) -> dict[str, Any]:
    """The object in an answer; an ApiException for a refusal."""
    if response.status not in _SUCCESS:
        from importlib import import_module

        failure = import_module(f"{client_module}.exceptions").ApiException
        raise failure.from_response(http_resp=response, body=data.decode("utf-8", "replace"), data=None)
    # No cause is kept: it would hold the whole answer.
    parsed = _json(data)
    if not isinstance(parsed, dict) or not isinstance(parsed.get("kind"), str) or not _has_shape(parsed):
        raise UnreadableAnswerError(f"HTTP {response.status}, but no object in it")
    return parsed


def _has_shape(obj: dict[str, Any]) -> bool:
    """Whether what every object has is what it should be, so that nobody further up has to ask."""
    return isinstance(obj.get("metadata", {}), dict)


def _json(data: bytes) -> Any:
    """What the bytes say, or None."""
    try:
        return json.loads(data)
    except (ValueError, RecursionError):
        return None


class Wire:
    """Makes requests in threads."""

    def __init__(self, api_client: Any) -> None:
        self.api_client = api_client

    def send(self, request: Request, timeout: float) -> Any:
        serialized = self.api_client.param_serialize(**_arguments(request))
        with within(timeout):
            response = self.api_client.call_api(*serialized, _request_timeout=timeout)
            return _object("kubernetes.client", response, response.read())

    def stream(self, request: Request, timeout: float, silence: float, stop: Stop | None = None) -> Any:
        serialized = self.api_client.param_serialize(**_arguments(request))
        with within(timeout + silence, whole=False) as held:
            response = self.api_client.call_api(*serialized, _request_timeout=(timeout, silence))
            if response.status not in _SUCCESS:
                _object("kubernetes.client", response, response.read())
            sock = held.sock
        return EventStream(response.response, stop, sock)


class AsyncWire:
    """Makes requests in tasks."""

    def __init__(self, api_client: Any) -> None:
        self.api_client = api_client

    async def send(self, request: Request, timeout: float) -> Any:  # noqa: ASYNC109 - handed on
        serialized = await self.api_client.param_serialize(**_arguments(request))
        response = await self.api_client.call_api(*serialized, _request_timeout=timeout)
        return _object("kubernetes.aio.client", response, await response.read())

    async def stream(
        self,
        request: Request,
        timeout: float,  # noqa: ASYNC109
        silence: float,
        stop: Stop | None = None,
    ) -> Any:
        serialized = await self.api_client.param_serialize(**_arguments(request))
        # One number would be the time of the whole stream, however alive it is.
        calm = _sock_read(silence)
        async with asyncio.timeout(timeout + silence):
            response = await self.api_client.call_api(*serialized, _request_timeout=calm)
            if response.status not in _SUCCESS:
                _object("kubernetes.aio.client", response, await response.read())
        return AsyncEventStream(response.response, stop)


def _sock_read(seconds: float) -> Any:
    from aiohttp import ClientTimeout

    return ClientTimeout(total=None, sock_read=seconds)


class _Lines:
    """Cuts what arrives into lines, and lines into events."""

    def __init__(self, raw: Any, stop: Stop | None = None) -> None:
        self.raw, self._stop = raw, stop
        self._buffer = bytearray()

    def _event(self) -> dict[str, Any] | None:
        """The next whole event in the buffer."""
        while (end := self._buffer.find(b"\n")) >= 0:
            line = bytes(self._buffer[:end])
            del self._buffer[: end + 1]
            if line.strip():
                return _parse(line)
        if len(self._buffer) > _LONGEST_LINE:
            raise UnreadableAnswerError("a watch event without an end")
        return None

    def close(self) -> None:
        self.raw.close()


def _parse(line: bytes) -> dict[str, Any]:
    event: Any = _json(line)
    obj = event.get("object") if isinstance(event, dict) else None
    if not isinstance(obj, dict) or not isinstance(event.get("type"), str) or not _has_shape(obj):
        raise UnreadableAnswerError("a watch event without an object")
    return {**event}


class EventStream(_Lines):
    """Watch events, one by one; None at the end. A `stop` ends the stream at once."""

    def __init__(self, raw: Any, stop: Stop | None = None, sock: Any = None) -> None:
        super().__init__(raw, stop)
        self._sock = sock
        self._curfew = None if stop is None else Curfew(math.inf, stop, sock)

    def close(self) -> None:
        if self._curfew is not None:
            self._curfew.end()
        super().close()

    def next(self, seconds: float) -> dict[str, Any] | None:
        """The next event; TimeoutError if it is not there, whole, in that many seconds."""
        ends = time.monotonic() + seconds
        while (event := self._event()) is None:
            self._wait_until(ends)
            chunk = self.raw.read1(_CHUNK)
            if not chunk:
                return None
            self._buffer += chunk
        return event

    def _wait_until(self, ends: float) -> None:
        """Bound the next read: the timeout of the request was that of its beginning."""
        left = ends - time.monotonic()
        if left <= 0:
            raise TimeoutError("a watch event took too long to arrive")
        if self._sock is not None:
            self._sock.settimeout(left)


class AsyncEventStream(_Lines):
    """The same in tasks."""

    async def next(self, seconds: float) -> dict[str, Any] | None:
        """The next event; TimeoutError if it is not there, whole, in that many seconds."""
        async with asyncio.timeout(seconds):
            while (event := self._event()) is None:
                chunk = await self._chunk()
                if not chunk:
                    return None
                self._buffer += chunk
        return event

    async def _chunk(self) -> bytes:
        """What comes next; nothing if somebody said stop before it came."""
        if self._stop is None:
            return bytes(await self.raw.content.readany())
        reading = asyncio.ensure_future(self.raw.content.readany())
        stopping = asyncio.ensure_future(clock.apause(_FOREVER, self._stop))
        try:
            await asyncio.wait({reading, stopping}, return_when=asyncio.FIRST_COMPLETED)
            return bytes(reading.result()) if reading.done() else b""
        finally:
            reading.cancel()
            stopping.cancel()
