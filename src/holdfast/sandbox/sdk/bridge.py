"""Lets programs without an event loop call the asynchronous SDK: one loop in a thread of its own, for all.

Ctrl-C in the calling thread cancels what runs in the loop and waits until that has cleaned up. The caller's
context goes along, so that a deadline around a call holds inside it. Not here: any call itself.
"""

from __future__ import annotations

import asyncio
import contextvars
import os
import threading
from concurrent.futures import CancelledError as FutureCancelled
from concurrent.futures import Future
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeVar

from holdfast.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Coroutine, Iterator
    from contextlib import AbstractAsyncContextManager

T = TypeVar("T")

_CLEANUP_SECONDS = 5.0
_END = object()


class _Loop:
    """The loop's thread; started on first use, and anew in a forked child."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._pid = 0

    def get(self) -> asyncio.AbstractEventLoop:
        with self._lock:
            if self._loop is None or self._pid != os.getpid():
                self._loop, self._pid = asyncio.new_event_loop(), os.getpid()
                threading.Thread(target=self._loop.run_forever, name="holdfast-sdk", daemon=True).start()
            return self._loop


_LOOP = _Loop()
_LAST: set[asyncio.Task[None]] = set()
"""Clean-ups under way: a loop itself holds its tasks only weakly."""


def run(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine to its end from a plain program."""
    loop = _LOOP.get()
    if _running_here() is loop:
        work.close()
        raise UsageError("the plain SDK cannot be called from inside its own callbacks")
    ended: Future[T] = Future()
    task: list[asyncio.Task[T]] = []
    context = contextvars.copy_context()

    def begin() -> None:
        made = loop.create_task(work, context=context)
        task.append(made)
        made.add_done_callback(lambda done: _hand_over(done, ended))

    def end() -> None:
        for each in task:
            each.cancel()
        if not task:  # interrupted before it was even handed over
            work.close()
            ended.cancel()
            ended.set_running_or_notify_cancel()

    try:
        loop.call_soon_threadsafe(begin)
        return ended.result()
    except FutureCancelled:
        raise
    except BaseException:
        if not ended.done():
            loop.call_soon_threadsafe(end)
            _wait_for_cleanup(ended)
        raise


def let_go(work: Coroutine[Any, Any, None]) -> None:
    """Run a last clean-up from wherever an object dies: in a plain thread, or in the loop's own."""
    loop = _LOOP.get()
    if _running_here() is loop:
        task = loop.create_task(work)
        _LAST.add(task)
        task.add_done_callback(_LAST.discard)
    else:
        run(work)


def iterate(source: AsyncIterator[T]) -> Iterator[T]:
    """An asynchronous iterator as a plain one; closed when the plain one is."""
    try:
        while (item := run(_next(source))) is not _END:
            yield item  # type: ignore[misc]
    finally:
        run(_close(source))


class Entered:
    """An asynchronous context manager as a plain one."""

    def __init__(self, manager: AbstractAsyncContextManager[T]) -> None:
        self._manager = manager

    def __enter__(self) -> Any:
        return run(self._enter())

    def __exit__(self, *trouble: object) -> bool | None:
        return run(self._exit(*trouble))

    async def _enter(self) -> Any:
        return await self._manager.__aenter__()

    async def _exit(self, *trouble: Any) -> bool | None:
        return await self._manager.__aexit__(*trouble)


def _hand_over(done: asyncio.Task[T], ended: Future[T]) -> None:
    if done.cancelled():
        ended.cancel()
        ended.set_running_or_notify_cancel()
    elif (error := done.exception()) is not None:
        ended.set_exception(error)
    else:
        ended.set_result(done.result())


def _wait_for_cleanup(ended: Future[Any]) -> None:
    try:
        ended.exception(timeout=_CLEANUP_SECONDS)
    except (FutureCancelled, TimeoutError):
        return


async def _next(source: AsyncIterator[T]) -> T | object:
    try:
        return await anext(source)
    except StopAsyncIteration:
        return _END


async def _close(source: AsyncIterator[Any]) -> None:
    close = getattr(source, "aclose", None)
    if close is not None:
        # After a second Ctrl-C the first one's cancellation may still be under way: it ends it as well.
        with suppress(RuntimeError):
            await close()


def _running_here() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None
