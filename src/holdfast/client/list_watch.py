"""Watches all sandboxes of a gateway; after a lost connection, watches again and reports what it missed."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import msgspec

from holdfast.api import Phase, Problem, SandboxChange, SandboxEventType, SandboxView
from holdfast.client.errors import is_retryable, name_gateway, retry_after_seconds
from holdfast.client.event_stream import EventStreamParser
from holdfast.client.transport import decode_response
from holdfast.errors import GatewayUnavailableError, HoldfastError, ResponseLostError
from holdfast.retry import Policy, clock, exponential

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Iterator

    from holdfast.client.event_stream import ServerSentEvent
    from holdfast.client.transport import Transport


async def watch_list(
    transport: Transport, selector: str | None, reconnect_timeout: float
) -> AsyncGenerator[SandboxChange, None]:
    """Iterate over the existing sandboxes and each change; see `AsyncSandboxes.watch`."""
    watch = _ListWatch(transport, selector)
    policy = Policy(
        attempts=None,
        # Never set: the time since the last response limits the attempts, not the time since the last change.
        stop=asyncio.Event(),
        backoff=exponential(0.2, cap=5.0),
        retry_on=lambda error: is_retryable(error) and watch.was_connected_within(reconnect_timeout),
        retry_after=retry_after_seconds,
        on_retry=transport.on_retry,
        operation="watch sandboxes",
    )
    try:
        while True:
            for change in await policy.acall(watch.next_changes):
                yield change
    finally:
        await watch.close()


class _ListWatch:
    """The sandboxes that the caller knows, over any number of connections."""

    def __init__(self, transport: Transport, selector: str | None) -> None:
        self._transport = transport
        self._query = {"selector": selector} if selector else None
        self._known: dict[str, SandboxView] = {}
        self._unconfirmed: set[str] = set()
        self._connection: AsyncGenerator[list[SandboxChange], None] | None = None
        self._connected_at: float | None = None

    def was_connected_within(self, seconds: float) -> bool:
        """Whether the API has sent something in the last seconds; False before the first response."""
        return self._connected_at is not None and clock.monotonic() - self._connected_at <= seconds

    async def next_changes(self) -> list[SandboxChange]:
        """Return the next changes; connect first if there is no connection."""
        if self._connection is None:
            self._unconfirmed = set(self._known)
            self._connection = self._read_connection()
        try:
            return await anext(self._connection)
        except BaseException:
            # An error has ended the generator: the next attempt connects again.
            await self.close()
            raise

    async def close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            await connection.aclose()

    async def _read_connection(self) -> AsyncGenerator[list[SandboxChange], None]:
        path, parser = "/v1/watch/sandboxes", EventStreamParser()
        async with self._transport.stream("GET", path, query=self._query) as response:
            async for chunk in response.content.iter_any():
                self._connected_at = clock.monotonic()
                changes: list[SandboxChange] = []
                failure = None
                try:
                    for event in parser.feed(chunk):
                        changes += self._changes_of(event)
                except HoldfastError as error:
                    # Deliver the changes before it first: the next connection does not repeat them.
                    failure = error
                if changes:
                    yield changes
                if failure is not None:
                    raise failure
        raise ResponseLostError("sandboxes: the event stream was interrupted")

    def _changes_of(self, event: ServerSentEvent) -> Iterator[SandboxChange]:
        match event.name:
            case SandboxEventType.FAILED:
                problem = decode_response(event.data, Problem)
                hint = name_gateway(problem.hint, self._transport.gateway)
                raise GatewayUnavailableError(problem.message, hint=hint or None)
            case SandboxEventType.STATE:
                view = decode_response(event.data, SandboxView)
                last = self._known.get(view.name)
                self._unconfirmed.discard(view.name)
                self._known[view.name] = view
                if view != last:
                    yield SandboxChange(type="modified" if last else "added", sandbox=view)
            case SandboxEventType.DELETED:
                yield from self._forget(decode_response(event.data, SandboxView).name)
            case SandboxEventType.SYNCED:
                # Deleted while there was no connection.
                for name in sorted(self._unconfirmed):
                    yield from self._forget(name)
                self._unconfirmed = set()

    def _forget(self, name: str) -> Iterator[SandboxChange]:
        last = self._known.pop(name, None)
        if last is not None:
            deleted = msgspec.structs.replace(last, phase=Phase.DELETING)
            yield SandboxChange(type="deleted", sandbox=deleted)
