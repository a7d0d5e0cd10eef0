"""Stream the state of a sandbox as Server-Sent Events: the current state, each change, and the deletion.

A slow client gets only the latest state. Comments keep idle connections alive.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import msgspec

from holdfast.api import API_VERSION, EXTENSIONS_API_VERSION, Phase, SandboxEventType
from holdfast.errors import DeadlineExceededError
from holdfast.kube import WaitResult
from holdfast.sandbox import bound_sandbox_name
from holdfast.server.errors import as_api_error
from holdfast.server.sandboxes import SandboxLookup, explain_start, is_starting

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from holdfast.api import PoolEventType, PoolView, Problem, SandboxView
    from holdfast.server.sandboxes import SandboxService

KEEPALIVE_INTERVAL = 10.0
_START_CHECK_INTERVAL = 2.0
MAX_STREAM_SECONDS = 6 * 3600.0
KEEPALIVE_COMMENT = b": keepalive\n\n"


async def stream_events(service: SandboxService, name: str) -> AsyncIterator[bytes]:
    """Return the event stream of a sandbox; a missing sandbox is reported before the first event."""
    return _iter_events(service, name, await service.lookup(name))


async def _iter_events(service: SandboxService, name: str, lookup: SandboxLookup) -> AsyncIterator[bytes]:
    try:
        state = _SandboxState(service, lookup, await service.present(lookup))
        yield encode_event(SandboxEventType.STATE, state.view)
        while True:
            async for change in _watch_changes(service, lookup, state.check_interval):
                if await state.update(change):
                    yield encode_event(SandboxEventType.STATE, state.view)
                elif change is None:
                    yield KEEPALIVE_COMMENT
            # The watched object is deleted, or the SandboxClaim was bound: it may have a sandbox now.
            next_lookup = await _next_lookup(service, name, lookup)
            if next_lookup is None:
                yield encode_event(
                    SandboxEventType.DELETED, msgspec.structs.replace(state.view, phase=Phase.DELETING)
                )
                return
            lookup = next_lookup
    except DeadlineExceededError:
        return
    except Exception as error:  # noqa: BLE001 (any failure is reported to the client)
        yield encode_event(SandboxEventType.FAILED, as_api_error(error).problem)


class _SandboxState:
    """The state that the client has received, and what it was made from."""

    def __init__(self, service: SandboxService, lookup: SandboxLookup, view: SandboxView) -> None:
        self._service, self._lookup, self.view = service, lookup, view
        self._is_explained = False

    def check_interval(self) -> float:
        """Seconds until the next check if nothing changes."""
        return _START_CHECK_INTERVAL if self._needs_explanation() else KEEPALIVE_INTERVAL

    async def update(self, change: SandboxLookup | None) -> bool:
        """Take over a change, or check what only events tell; return whether the view has changed."""
        self._lookup = change or self._lookup
        if change is None and not self._needs_explanation():
            return False
        view = plain = await self._service.present(self._lookup)
        # A pod usually starts before the first check, so that most starts cost no request for events.
        if change is None or self._is_explained:
            view = await explain_start(self._service.cluster, self._lookup.sandbox, plain)
        self._is_explained = view != plain
        before, self.view = self.view, view
        return view != before

    def _needs_explanation(self) -> bool:
        return self._is_explained or is_starting(self.view)


async def _next_lookup(service: SandboxService, name: str, lookup: SandboxLookup) -> SandboxLookup | None:
    if lookup.sandbox is not None and lookup.sandbox_claim is None:
        return None
    try:
        current = await service.lookup(name)
    except Exception as error:
        if as_api_error(error).problem.code == "sandbox-missing":
            return None
        raise
    return None if lookup.sandbox is not None and current.sandbox is None else current


async def _watch_changes(
    service: SandboxService, lookup: SandboxLookup, interval: Callable[[], float]
) -> AsyncIterator[SandboxLookup | None]:
    """Yield each state of the sandbox, or of its unbound SandboxClaim; None after each idle interval."""
    latest: asyncio.Queue[SandboxLookup] = asyncio.Queue(maxsize=1)
    watched = lookup.sandbox or lookup.sandbox_claim
    assert watched is not None  # noqa: S101 (a lookup has at least one of them)
    uid, is_claim, before = watched["metadata"]["uid"], lookup.sandbox is None, bound_sandbox_name(watched)

    # The watch calls this on the event loop. It must not wait for the client: the watch would fall behind.
    def observe(obj: dict[str, Any] | None) -> WaitResult:
        if obj is None or obj["metadata"]["uid"] != uid:
            return WaitResult(done=True, observed="deleted")
        if latest.full():  # the client is slow: a new state replaces one that was not consumed
            latest.get_nowait()
        latest.put_nowait(SandboxLookup(None, obj) if is_claim else SandboxLookup(obj, lookup.sandbox_claim))
        return WaitResult(done=is_claim and bound_sandbox_name(obj) != before, observed="watched")

    watch = asyncio.ensure_future(
        service.cluster.objects.wait(
            "SandboxClaim" if is_claim else "Sandbox",
            watched["metadata"]["name"],
            observe,
            namespace=service.cluster.namespace,
            api_version=EXTENSIONS_API_VERSION if is_claim else API_VERSION,
            deadline=MAX_STREAM_SECONDS,
        )
    )
    try:
        while not (watch.done() and latest.empty()):
            change = asyncio.ensure_future(latest.get())
            try:
                await asyncio.wait({change, watch}, timeout=interval(), return_when=asyncio.FIRST_COMPLETED)
                state = change.result() if change.done() else None
            finally:
                # Loses no state: `get` takes the item from the queue only when its task resumes.
                change.cancel()
            yield state
        await watch
    finally:
        # The generator also ends when the client disconnects; the watch must end with it.
        watch.cancel()
        await asyncio.gather(watch, return_exceptions=True)


def encode_event(
    event: SandboxEventType | PoolEventType, data: SandboxView | PoolView | Problem | dict[str, Any]
) -> bytes:
    """Encode one event; JSON contains no line breaks."""
    return b"event: %s\ndata: %s\n\n" % (event.value.encode(), msgspec.json.encode(data))
