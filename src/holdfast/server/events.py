"""A sandbox's states as Server-Sent Events: how it is now, then each change, then that it is gone.

Only the newest state is kept for a client that reads slowly. Comments keep the connection known as alive.
Not here: what a state says (views.py).
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import msgspec

from holdfast.errors import DeadlineError
from holdfast.kube import Sight
from holdfast.sandbox.api import API_VERSION, EXTENSIONS_API_VERSION
from holdfast.sandbox.wire import Event, Phase
from holdfast.server.problems import as_api_error
from holdfast.server.service import Found

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from holdfast.sandbox.wire import Problem, SandboxView
    from holdfast.server.service import Service

_ALIVE_EVERY = 10.0
_LONGEST = 6 * 3600.0
_KEEP_ALIVE = b": still here\n\n"


async def stream(service: Service, name: str) -> AsyncIterator[bytes]:
    """The events of a sandbox; whether it is there at all is found out before the first one."""
    found = await service.found(name)
    return _events(service, name, found)


async def _events(service: Service, name: str, found: Found) -> AsyncIterator[bytes]:
    last = await service.view(found)
    yield encoded(Event.STATE, last)
    try:
        while True:
            async for seen in _changes(service, found):
                if seen is None:
                    yield _KEEP_ALIVE
                    continue
                state = await service.view(seen)
                if state != last:
                    last = state
                    yield encoded(Event.STATE, state)
            # What was watched is gone; a claim may lead to a sandbox by now.
            after = await _next(service, name, found)
            if after is None:
                yield encoded(Event.DELETED, msgspec.structs.replace(last, phase=Phase.DELETING))
                return
            found = after
    except DeadlineError:
        return
    except Exception as error:  # noqa: BLE001 (whatever it is, the client is told)
        yield encoded(Event.FAILED, as_api_error(error).problem)


async def _next(service: Service, name: str, found: Found) -> Found | None:
    if found.sandbox is not None and found.claim is None:
        return None
    try:
        after = await service.found(name)
    except Exception as error:
        if as_api_error(error).problem.code == "sandbox-missing":
            return None
        raise
    return None if found.sandbox is not None and after.sandbox is None else after


async def _changes(service: Service, found: Found) -> AsyncIterator[Found | None]:
    """Each state of the sandbox, or of the claim that has none yet; None where a while passed without one."""
    newest = _Newest()
    watched = found.sandbox or found.claim
    assert watched is not None  # noqa: S101 (one of the two is there)
    uid, is_claim, before = watched["metadata"]["uid"], found.sandbox is None, _bound(watched)

    def see(obj: dict[str, Any] | None) -> Sight:
        if obj is None or obj["metadata"]["uid"] != uid:
            return Sight(done=True, seen="gone")
        newest.put(Found(None, obj) if is_claim else Found(obj, found.claim))
        return Sight(done=is_claim and _bound(obj) != before, seen="watched")

    watching = asyncio.ensure_future(
        service.cluster.objects.wait(
            "SandboxClaim" if is_claim else "Sandbox",
            watched["metadata"]["name"],
            see,
            namespace=service.cluster.namespace,
            api_version=EXTENSIONS_API_VERSION if is_claim else API_VERSION,
            deadline=_LONGEST,
        )
    )
    watching.add_done_callback(lambda _: newest.end())
    try:
        while not newest.is_over:
            yield await newest.take()
        await watching
    finally:
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)


class _Newest:
    """Room for one state: a newer one takes the place of one that nobody has taken yet."""

    def __init__(self) -> None:
        self._state: Found | None = None
        self._ended = False
        self._news = asyncio.Event()

    @property
    def is_over(self) -> bool:
        return self._ended and self._state is None

    def put(self, state: Found) -> None:
        self._state = state
        self._news.set()

    def end(self) -> None:
        self._ended = True
        self._news.set()

    async def take(self) -> Found | None:
        """The newest state; None after a while without one, or at the end."""
        with suppress(TimeoutError):
            await asyncio.wait_for(self._news.wait(), _ALIVE_EVERY)
        state, self._state = self._state, None
        if not self._ended:
            self._news.clear()
        return state


def _bound(obj: dict[str, Any]) -> str | None:
    """The sandbox that a claim has got."""
    return ((obj.get("status") or {}).get("sandbox") or {}).get("name")


def encoded(event: Event, data: SandboxView | Problem) -> bytes:
    """One event; JSON has no line breaks of its own."""
    return b"event: %s\ndata: %s\n\n" % (event.value.encode(), msgspec.json.encode(data))
