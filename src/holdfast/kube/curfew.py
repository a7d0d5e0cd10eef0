"""Ends what waits for a server when its time is over, or when somebody says stop: shuts down its socket.

A socket's own timeout bounds each wait for bytes, and a server that sends one now and then can make these add
up to any length. So one thread, there only while there is something to watch over, holds whole requests to
their time. Not here: requests in tasks, which can be cancelled, and a TLS handshake, which has no socket yet.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import os
import socket
import threading
import time
from functools import wraps
from typing import TYPE_CHECKING, Any, Self

from holdfast.kube.chain import own_causes
from holdfast.kube.status import http_status
from holdfast.retry import current_deadline

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

    from holdfast.retry.clock import Stop

# How soon a stop is noticed: an event cannot be waited for together with anything else.
_GLANCE = 0.02
# A silent server is told by the socket's own timeout, which callers know; this one comes after it.
_GRACE = 0.05
# A timeout of nothing would be taken for none.
_LEAST = 0.001


class Curfew:
    """The time for one exchange with a server; over it as soon as `end` is called."""

    __slots__ = ("ended", "expires", "sock", "stop", "whole")

    def __init__(
        self, seconds: float, stop: Stop | None = None, sock: Any = None, *, whole: bool = False
    ) -> None:
        self.whole = whole
        self.expires = time.monotonic() + seconds
        self.stop = stop
        self.sock = sock
        self.ended = False
        _WATCH.add(self)

    def end(self) -> None:
        """From here on the socket may serve somebody else."""
        _WATCH.remove(self)

    def is_over(self, now: float) -> bool:
        return now >= self.expires or (self.stop is not None and self.stop.is_set())

    def shut(self) -> None:
        self.ended = True
        if isinstance(self.sock, socket.socket):
            # Past the TLS layer, which would forget its session under the hands of the thread that reads.
            with contextlib.suppress(OSError):
                socket.socket.shutdown(self.sock, socket.SHUT_RDWR)


class _Watch:
    """The curfews of this process, and the thread that keeps them."""

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        self._changed = threading.Condition(threading.Lock())
        self._kept: set[Curfew] = set()
        self._thread: threading.Thread | None = None
        self._wakes = math.inf

    def add(self, curfew: Curfew) -> None:
        """Watch over it; the thread is only woken where it would come too late by itself."""
        self._kept.add(curfew)
        if curfew.expires < self._wakes or curfew.stop is not None:
            with self._changed:
                if self._thread is None or not self._thread.is_alive():
                    self._thread = threading.Thread(target=self._run, name="holdfast-curfew", daemon=True)
                    self._thread.start()
                else:
                    self._changed.notify()

    def remove(self, curfew: Curfew) -> None:
        """Either we take it out or the thread has: then it is being shut, and that has to be over first."""
        try:
            self._kept.remove(curfew)
        except KeyError:
            with self._changed:
                return

    def release(self, curfew: Curfew) -> None:
        """Its socket is about to serve somebody else; a shut that is under way has to be over first."""
        curfew.sock = None
        if curfew not in self._kept:
            with self._changed:
                return

    def _run(self) -> None:
        with self._changed:
            while True:
                now = time.monotonic()
                self._shut_what_is_over(now)
                # Said before looking: whoever comes from here on wakes the thread, or is seen by the look.
                self._wakes = math.inf
                kept = self._kept.copy()
                if not kept:
                    self._thread = None
                    return
                glance = now + _GLANCE if any(each.stop is not None for each in kept) else math.inf
                self._wakes = min(glance, *(each.expires for each in kept))
                self._changed.wait(min(max(self._wakes - now, 0.0), threading.TIMEOUT_MAX))

    def _shut_what_is_over(self, now: float) -> None:
        for each in self._kept.copy():
            if each.is_over(now):
                with contextlib.suppress(KeyError):
                    self._kept.remove(each)
                    each.shut()


_WATCH = _Watch()
# A child has neither the thread nor the requests, only their sockets.
os.register_at_fork(after_in_child=_WATCH.forget)


class _Here(threading.local):
    curfew: Curfew | None = None


_here = _Here()


class within:  # noqa: N801 - reads as the statement that it is
    """`with within(30):` the requests of this thread, all of them together, are over after 30 seconds.

    With `whole`, answers are read to their end in here, so that no socket needs a timeout of its own.
    """

    __slots__ = ("_curfew", "_outer", "_seconds", "_whole")

    def __init__(self, seconds: float, *, whole: bool = True) -> None:
        self._seconds, self._whole = seconds, whole

    def __enter__(self) -> Self:
        self._outer, self._curfew = _here.curfew, Curfew(self._seconds + _GRACE, whole=self._whole)
        _here.curfew = self._curfew
        return self

    @property
    def sock(self) -> Any:
        """The socket that the request of this thread goes through."""
        return self._curfew.sock

    def __exit__(
        self, _kind: type[BaseException] | None, error: BaseException | None, _where: TracebackType | None
    ) -> None:
        self._curfew.end()
        _here.curfew = self._outer
        if self._curfew.ended and isinstance(error, Exception) and _was_cut(error):
            raise TimeoutError(f"timed out: the request was not over after {self._seconds:.3g} s") from error


def watches() -> bool:
    """Whether all that the request of this thread waits for is held to its time."""
    return _here.curfew is not None and _here.curfew.whole


def left() -> float | None:
    """Seconds that the request of this thread still has, never none; None if nobody holds it to a time."""
    curfew = _here.curfew
    return None if curfew is None else max(_LEAST, curfew.expires - _GRACE - time.monotonic())


def lets_go() -> None:
    """Tell that the connection of this thread's request goes back to where others take it from."""
    if _here.curfew is not None:
        _WATCH.release(_here.curfew)


def uses(sock: Any) -> None:
    """Tell that the request of this thread goes through this socket."""
    curfew = _here.curfew
    if curfew is not None:
        curfew.sock = sock
        if curfew.ended:
            curfew.shut()


def bounded(fn: Callable[..., Any]) -> Callable[..., Any]:
    """A method of the official client whose timeout, where it is one number, is that of the whole call.

    A stream has until the deadline, if there is one, to begin.
    """

    if fn.__name__.endswith("_without_preload_content"):
        return fn

    @wraps(fn)
    def whole(*args: Any, **kwargs: Any) -> Any:
        seconds = kwargs.get("_request_timeout")
        if isinstance(seconds, int | float) and not _streams(kwargs):
            with within(seconds):
                return fn(*args, **kwargs)
        deadline = current_deadline()
        if deadline is None:
            return fn(*args, **kwargs)
        with within(deadline.remaining(), whole=False):
            return fn(*args, **kwargs)

    return whole


def abounded(fn: Callable[..., Any]) -> Callable[..., Any]:
    """The same of a method in tasks, where a request's own timeout is that of the whole already."""

    @wraps(fn)
    async def whole(*args: Any, **kwargs: Any) -> Any:
        deadline = current_deadline() if _streams(kwargs) else None
        if deadline is None:
            return await fn(*args, **kwargs)
        async with asyncio.timeout(deadline.remaining()):
            return await fn(*args, **kwargs)

    return whole


def _streams(kwargs: dict[str, Any]) -> bool:
    """Whether the answer is read after the call: then its time is the caller's, wait for wait."""
    return kwargs.get("_preload_content") is False or bool(kwargs.get("watch") or kwargs.get("follow"))


def _was_cut(error: Exception) -> bool:
    """Whether an error is what a shut socket leaves: an answer, or no connection at all, say more."""
    from urllib3.exceptions import ConnectTimeoutError, NewConnectionError

    unsent = (ConnectTimeoutError, NewConnectionError)
    return http_status(error) is None and not any(isinstance(each, unsent) for each in own_causes(error))
