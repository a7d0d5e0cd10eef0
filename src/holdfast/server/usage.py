"""Notes that sandboxes are in use, for those that want to be suspended when they are not.

A use lasts as long as its stream is open. Its time is written to the sandbox at most once in a while: soon
enough that nobody is put to sleep at work, and what was not written yet is written when it may be. That a
note fails harms nobody's stream. Not here: what idleness means (the sandbox floor's idle.py).
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from holdfast.errors import HoldfastError, TemporaryError
from holdfast.retry import clock
from holdfast.sandbox.idle import idle_seconds

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Mapping

    Write = Callable[[Mapping[str, Any], str], Awaitable[None]]

log = logging.getLogger("holdfast.server")

_SELDOM_ENOUGH = 30.0
_SHARE = 4


class Usage:
    """Who is used just now; `write` puts a time on a sandbox."""

    def __init__(self, write: Write) -> None:
        self._write = write
        self._used: dict[str, _Used] = {}

    @asynccontextmanager
    async def of(self, sandbox: Mapping[str, Any]) -> AsyncIterator[None]:
        """A sandbox is in use while the block runs; where that is due, it is noted before it begins."""
        idle = idle_seconds(sandbox)
        if idle is None:
            yield
            return
        uid = sandbox["metadata"]["uid"]
        used = self._used.get(uid)
        if used is None:
            used = self._used[uid] = _Used(sandbox, min(_SELDOM_ENOUGH, idle / _SHARE))
        used.open += 1
        used.touch()
        try:
            if used.noting is None:
                used.noting = asyncio.create_task(self._keep_noting(uid, used))
            await self._note(used)
            yield
        finally:
            used.open -= 1
            used.touch()

    async def _keep_noting(self, uid: str, used: _Used) -> None:
        """Go on until the last use is written."""
        try:
            while used.open or used.is_behind:
                await clock.apause(used.due_in())
                if used.open:
                    used.touch()
                await self._note(used)
        finally:
            used.noting = None
            if not used.open:
                self._used.pop(uid, None)

    async def _note(self, used: _Used) -> None:
        if used.due_in() > 0:
            return
        moment = used.last
        used.tried()
        try:
            await self._write(used.sandbox, text(moment))
        except HoldfastError as error:
            log.warning("use of %s is not noted: %s", used.sandbox["metadata"]["name"], error.message)
            if isinstance(error, TemporaryError):
                return
        used.noted = moment


class _Used:
    """One sandbox: when it was used last, and what of that is written."""

    def __init__(self, sandbox: Mapping[str, Any], every: float) -> None:
        self.sandbox, self._every = sandbox, every
        self.open = 0
        self.last = self.noted = datetime.min.replace(tzinfo=UTC)
        self.noting: asyncio.Task[None] | None = None
        self._tried: float | None = None

    @property
    def is_behind(self) -> bool:
        return self.last > self.noted

    def touch(self) -> None:
        self.last = datetime.now(UTC)

    def tried(self) -> None:
        self._tried = clock.monotonic()

    def due_in(self) -> float:
        """Seconds until it may be written again."""
        return 0.0 if self._tried is None else max(0.0, self._tried + self._every - clock.monotonic())


def text(moment: datetime) -> str:
    """A time as sandboxes carry it."""
    return moment.astimezone(UTC).isoformat(timespec="milliseconds")
