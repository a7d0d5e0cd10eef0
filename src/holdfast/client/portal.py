"""Runs coroutines for programs without an event loop, on one loop in a background thread.

Ctrl-C in the calling thread cancels the coroutine and waits for its cleanup. The coroutine runs in a copy of
the caller's context, so that a deadline around the call applies to it.
"""

from __future__ import annotations

import asyncio
import os
import threading
from concurrent.futures import CancelledError as FutureCancelled, Future
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeVar

from holdfast.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Coroutine, Iterator
    from contextlib import AbstractAsyncContextManager

T = TypeVar("T")

_CLEANUP_TIMEOUT = 5.0
_EXHAUSTED = object()


class _LoopThread:
    """The loop and its thread; started on first use, and again in a forked child."""

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Forget loop and lock: a forked child has no thread that runs the loop or releases the lock."""
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None

    def get(self) -> asyncio.AbstractEventLoop:
        with self._lock:
            if self._loop is None:
                self._loop = loop = asyncio.new_event_loop()
                # A daemon thread does not keep a program alive that never calls `close()`.
                threading.Thread(target=_run_forever, args=[loop], name="holdfast-sdk", daemon=True).start()
            return self._loop


def _run_forever(loop: asyncio.AbstractEventLoop) -> None:
    while True:
        # asyncio stores both in their task and ends the loop. Only if it runs again do callers get outcomes.
        with suppress(SystemExit, KeyboardInterrupt):
            loop.run_forever()


_LOOP = _LoopThread()
os.register_at_fork(after_in_child=_LOOP.reset)
# Running cleanups: a loop keeps only weak references to its tasks.
_CLEANUP_TASKS: set[asyncio.Task[None]] = set()


def run(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine and return its result.

    Raises:
        UsageError: called from a callback that runs on the loop itself; waiting would deadlock.
    """
    loop = _LOOP.get()
    if _current_loop() is loop:
        coroutine.close()
        raise UsageError(
            "the synchronous client cannot be called from its own callbacks",
            hint="Use the asynchronous client: async with.",
        )
    future: Future[T] = Future()
    tasks: list[asyncio.Task[T]] = []

    def start() -> None:
        # `call_soon_threadsafe` runs this in a copy of the caller's context, which the task inherits.
        task = loop.create_task(coroutine)
        tasks.append(task)
        task.add_done_callback(lambda finished: _copy_outcome(finished, future))

    def cancel() -> None:
        # The loop runs callbacks in order: if `start` was scheduled, it has run and `tasks` is not empty.
        for task in tasks:
            task.cancel()
        if not tasks:  # interrupted before `start` was scheduled
            coroutine.close()
            future.cancel()
            future.set_running_or_notify_cancel()

    try:
        loop.call_soon_threadsafe(start)
        return future.result()
    except FutureCancelled:
        # The coroutine was cancelled inside the loop and has ended.
        raise
    except BaseException:
        if not future.done():
            loop.call_soon_threadsafe(cancel)
            with suppress(FutureCancelled, TimeoutError):
                future.exception(timeout=_CLEANUP_TIMEOUT)
        raise


def run_cleanup(coroutine: Coroutine[Any, Any, None]) -> None:
    """Run a cleanup from a finalizer, which may run on any thread, including the loop's."""
    loop = _LOOP.get()
    if _current_loop() is loop:
        task = loop.create_task(coroutine)
        _CLEANUP_TASKS.add(task)
        task.add_done_callback(_CLEANUP_TASKS.discard)
    else:
        run(coroutine)


def iterate(source: AsyncIterator[T]) -> Iterator[T]:
    """Iterate over an asynchronous iterator; closing the result closes the source."""
    try:
        # Each step runs as a separate task. The source must not hold an `asyncio.timeout`, or another scope
        # that belongs to one task, across a `yield`. The same applies to `SyncContextManager`.
        while (item := run(_next(source))) is not _EXHAUSTED:
            yield item  # type: ignore[misc]
    finally:
        run(_close(source))


class SyncContextManager:
    """Synchronous interface to an asynchronous context manager."""

    def __init__(self, manager: AbstractAsyncContextManager[T]) -> None:
        self._manager = manager

    def __enter__(self) -> Any:
        return run(self._manager.__aenter__())

    def __exit__(self, *exc_info: object) -> bool | None:
        return run(self._manager.__aexit__(*exc_info))  # type: ignore[arg-type]


def _copy_outcome(task: asyncio.Task[T], future: Future[T]) -> None:
    if task.cancelled():
        future.cancel()
        future.set_running_or_notify_cancel()
    elif (error := task.exception()) is not None:
        future.set_exception(error)
    else:
        future.set_result(task.result())


async def _next(source: AsyncIterator[T]) -> T | object:
    try:
        return await anext(source)
    except StopAsyncIteration:
        return _EXHAUSTED


async def _close(source: AsyncIterator[Any]) -> None:
    close = getattr(source, "aclose", None)
    if close is not None:
        # After a second Ctrl-C, the cancellation of the first may still be running; it closes the source too.
        with suppress(RuntimeError):
            await close()


def _current_loop() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None
