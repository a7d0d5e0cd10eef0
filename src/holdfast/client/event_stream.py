"""Server-Sent Events of the gateway's API, and the stream of the states of one object."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, TypeVar

from holdfast.api import Problem, SandboxEventType
from holdfast.client.errors import name_gateway
from holdfast.client.transport import decode_response
from holdfast.errors import GatewayUnavailableError, ResponseLostError

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Iterator

    from holdfast.client.transport import Transport

T = TypeVar("T")


class ServerSentEvent(NamedTuple):
    """One server-sent event."""

    name: str
    data: bytes


class EventStreamParser:
    """Incremental parser for a stream of server-sent events."""

    def __init__(self) -> None:
        self._buffer = b""
        self._name = "message"
        self._data: list[bytes] = []

    def feed(self, chunk: bytes) -> Iterator[ServerSentEvent]:
        """Return the events that this chunk completes."""
        *lines, self._buffer = (self._buffer + chunk).split(b"\n")
        for raw in lines:
            line = raw.removesuffix(b"\r")
            if line:
                self._parse_field(line)
                continue
            if self._data:
                yield ServerSentEvent(self._name, b"\n".join(self._data))
            self._name, self._data = "message", []

    def _parse_field(self, line: bytes) -> None:
        key, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if key == b"event":
            self._name = value.decode(errors="replace")
        elif key == b"data":
            self._data.append(value)


async def watch_object(
    transport: Transport, path: str, state_event: str, view_type: type[T]
) -> AsyncGenerator[T, None]:
    """Iterate over the current state of an object and each change, until it is deleted.

    Args:
        transport: connection to the gateway.
        path: path of the object.
        state_event: name of the event with a state, which is the kind of the object.
        view_type: type of a state.

    Raises:
        ResponseLostError: the stream was interrupted.
        GatewayUnavailableError: the API server ended the stream.
    """
    async with transport.stream("GET", f"{path}/events") as response:
        reader = EventStreamParser()
        async for chunk in response.content.iter_any():
            for event in reader.feed(chunk):
                if event.name == SandboxEventType.FAILED:
                    problem = decode_response(event.data, Problem)
                    hint = name_gateway(problem.hint, transport.gateway)
                    raise GatewayUnavailableError(problem.message, hint=hint or None)
                if event.name in (state_event, SandboxEventType.DELETED):
                    yield decode_response(event.data, view_type)
                if event.name == SandboxEventType.DELETED:
                    return
    raise ResponseLostError(f"{state_event} {path.rpartition('/')[2]}: the event stream was interrupted")
