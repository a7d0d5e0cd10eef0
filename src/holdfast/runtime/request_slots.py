"""Slots that limit how many requests run; a request above the limit waits while its client is connected."""

from __future__ import annotations

import asyncio
import contextlib
import select
from collections import deque
from typing import TYPE_CHECKING, cast

from holdfast.runtime.http_request import HTTPError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from typing import Self

# Clients of HTTP/1.1 discard it, even if they did not ask for it.
_INTERIM_RESPONSE = b"HTTP/1.1 100 Continue\r\n\r\n"


class RequestSlots:
    """At most `running` requests hold a slot, and at most `waiting` ones wait for it, in their order."""

    def __init__(self, running: int, waiting: int, rejection: str) -> None:
        self._free = running
        self._max_waiting = waiting
        self._rejection = rejection
        self._waiting: deque[_WaitingRequest] = deque()

    @contextlib.asynccontextmanager
    async def hold(self, client: asyncio.StreamWriter, *, is_probed: bool) -> AsyncIterator[None]:
        """Wait for a slot and hold it.

        Raises `HTTPError` if too many requests wait, and ConnectionResetError if the client disconnects
        first. With `is_probed`, the client can receive an interim response.
        """
        if client.transport.is_closing():
            raise ConnectionResetError
        if self._free:
            self._free -= 1
        else:
            await self._wait(client, is_probed=is_probed)
        try:
            yield
        finally:
            self._release()

    async def _wait(self, client: asyncio.StreamWriter, *, is_probed: bool) -> None:
        if len(self._waiting) >= self._max_waiting:
            raise HTTPError(503, self._rejection)
        with _WaitingRequest(client, is_probed=is_probed) as request:
            self._waiting.append(request)
            try:
                await request.turn
            except BaseException:
                # The time of the request can end after it received a slot.
                if request.has_slot:
                    self._release()
                raise
            finally:
                self._waiting.remove(request)

    def _release(self) -> None:
        for request in self._waiting:
            if request.take_slot():
                return
        self._free += 1


class _WaitingRequest:
    """Observes the connection of a client without reading from it: a body is read when it can be forwarded.

    A client that closed its connection and one that only closed its sending side look the same until they
    receive data: the first responds with a reset, the second discards an interim response.
    """

    def __init__(self, client: asyncio.StreamWriter, *, is_probed: bool) -> None:
        self._transport, self._is_probed = cast("asyncio.Transport", client.transport), is_probed
        self._loop = asyncio.get_running_loop()
        self.turn: asyncio.Future[None] = self._loop.create_future()
        self.has_slot = False

    def __enter__(self) -> Self:
        self._socket = self._transport.get_extra_info("socket").fileno()
        # asyncio reports a closed connection only after all data before it is read; epoll reports it at once.
        self._events = select.epoll()
        self._events.register(self._socket, select.EPOLLRDHUP)
        self._loop.add_reader(self._events.fileno(), self._check_client)
        # Otherwise, asyncio could close the socket before its events are read. If the stream has paused it,
        # because of much unread data, the stream resumes it.
        self._was_reading = self._transport.is_reading()
        self._transport.pause_reading()
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.remove_reader(self._events.fileno())
        self._events.close()
        if self._was_reading:
            self._transport.resume_reading()

    def take_slot(self) -> bool:
        """Take a slot, unless the client disconnected or the request waits no longer."""
        self._check_client()
        if self.turn.done():
            return False
        self.has_slot = True
        self.turn.set_result(None)
        return True

    def _check_client(self) -> None:
        for _, event in self._events.poll(0):
            is_lost = bool(event & (select.EPOLLHUP | select.EPOLLERR))
            if not is_lost:
                # Reports a reset only.
                self._events.modify(self._socket, 0)
                if self._is_probed:
                    self._transport.write(_INTERIM_RESPONSE)
                    is_lost = self._transport.is_closing()
            if is_lost and not self.turn.done():
                self.turn.set_exception(ConnectionResetError())
