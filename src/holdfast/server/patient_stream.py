"""A command's stream into a pod that its node does not know yet: opened again until it does.

A kubelet that has just started knows no pods for a moment, though they run and the cluster calls them ready.
It says so in the stream's first word; nothing has begun then, so the command may be asked for again. What
was sent meanwhile is kept for that, as long as it is little. Not here: streams that were cut, of which
nobody knows what they have begun.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING

import aiohttp
from aiohttp.http import WS_CLOSED_MESSAGE

from holdfast.errors import HoldfastError, TemporaryError
from holdfast.retry import Policy, exponential
from holdfast.sandbox.wire import Channel, has_not_begun
from holdfast.server.problems import AnswerLostError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from aiohttp.http_websocket import WSMessage, WSMessageTextBytes

    Opened = aiohttp.ClientWebSocketResponse[bool]
    Message = WSMessage | WSMessageTextBytes

_MOST_KEPT = 256 * 1024
_A_FRAME = 64
"""What a frame costs beside its bytes, so that many small ones are not kept for nothing."""
_KNOWN_WITHIN = 15.0


class _NotKnownYetError(TemporaryError):
    """The node does not know the pod; it carries the word that says so."""

    def __init__(self, said: Message) -> None:
        super().__init__("the node does not know the pod yet")
        self.said = said


_UNTIL_KNOWN = Policy(
    attempts=None, deadline=_KNOWN_WITHIN, backoff=exponential(0.1, cap=1.0), retry_on=_NotKnownYetError
)


class PatientStream:
    """Frames both ways, as of the WebSocket under it; whoever reads it has it opened again."""

    def __init__(self, opening: Callable[[], Awaitable[Opened]], first: Opened) -> None:
        self._opening, self._socket = opening, first
        self._kept: list[bytes] | None = []
        self._size = 0
        self._turn = asyncio.Lock()

    async def receive(self) -> Message:
        """The next message of the pod's side."""
        if self._kept is None:
            return await self._socket.receive()
        message = await self._first_word()
        if _is_not_known(message):
            message = await self._opened_again(message)
        self._kept = None  # the command has begun, or is over
        return message

    async def send_bytes(self, data: bytes) -> None:
        """Send a frame; one that the pod's side did not take is sent again where it is opened again."""
        async with self._turn:
            self._keep(data)
            try:
                await self._socket.send_bytes(data)
            except (aiohttp.ClientError, OSError):
                if self._kept is None:
                    raise

    async def close(self) -> None:
        """Say good-bye to the pod's side."""
        await self._socket.close()

    def _keep(self, data: bytes) -> None:
        if self._kept is not None:
            self._kept.append(data)
            self._size += len(data) + _A_FRAME
            if self._size > _MOST_KEPT:
                self._kept = None

    async def _opened_again(self, said: Message) -> Message:
        """The first word of a stream into a pod that is known; the last one that was said, if it never is."""
        try:
            return await _UNTIL_KNOWN.acall(self._anew)
        except _NotKnownYetError as error:
            return error.said
        except AnswerLostError:  # it may have begun this time
            return WS_CLOSED_MESSAGE
        except HoldfastError:
            return said

    async def _anew(self) -> Message:
        async with self._turn:
            with suppress(aiohttp.ClientError, OSError):
                await self._socket.close()
            if self._kept is None:
                raise TemporaryError("more was sent meanwhile than is kept")
            self._socket = await self._opening()
            with suppress(aiohttp.ClientError, OSError):  # its first word says why it takes no more
                for data in self._kept:
                    await self._socket.send_bytes(data)
        message = await self._first_word()
        if _is_not_known(message):
            raise _NotKnownYetError(message)
        return message

    async def _first_word(self) -> Message:
        """Each channel may begin with an empty frame, which says nothing."""
        while True:
            message = await self._socket.receive()
            if message.type is not aiohttp.WSMsgType.BINARY or len(message.data) > 1:
                return message


def _is_not_known(message: Message) -> bool:
    if message.type is not aiohttp.WSMsgType.BINARY:
        return False
    return bool(message.data[:1] == bytes((Channel.STATUS,)) and has_not_begun(message.data))
