"""Stream the states of all sandboxes as Server-Sent Events: those that exist, each change, and deletions.

The states are those of the list: without PVCs. A slow client gets only the latest state of each sandbox.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import msgspec

from holdfast.api import API_VERSION, EXTENSIONS_API_VERSION, Phase, SandboxEventType
from holdfast.retry import clock
from holdfast.server.errors import as_api_error
from holdfast.server.sandboxes import exclude_warm_pools, presenters
from holdfast.server.streams.events import (
    KEEPALIVE_COMMENT,
    KEEPALIVE_INTERVAL,
    MAX_STREAM_SECONDS,
    encode_event,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

    from holdfast.api import SandboxView
    from holdfast.server.namespace_client import NamespaceClient
    from holdfast.server.sandboxes import SandboxService

_PAGE_SIZE = 100


async def stream_list_events(service: SandboxService, selector: str | None) -> AsyncIterator[bytes]:
    """Return the event stream of all sandboxes; a failed list is reported before the first event."""
    selectors = {"Sandbox": exclude_warm_pools(selector), "SandboxClaim": selector}
    stream = ObjectStream(service.cluster, WatchedList(), selectors, is_list=True)
    versions = await stream.list_objects()
    return stream.iter_events(versions)


class WatchedList:
    """The sandboxes and SandboxClaims of a list, and the changes that the client has not received yet."""

    is_finished = False

    def __init__(self) -> None:
        # Views and not objects, which are ten times as large: every client has a list of its own.
        self._entries: dict[str, _Entry] = {}
        self._uids_by_name: dict[str, set[str]] = {}
        self._sent: dict[str, SandboxView] = {}
        self._changed: dict[str, None] = {}
        # SandboxClaims whose sandbox was deleted.
        self._lost_sandboxes: set[str] = set()
        self.has_changes = asyncio.Event()

    def retain(self, uids: set[str]) -> None:
        """Forget the objects that a complete list did not contain: they were deleted."""
        for uid in self._entries.keys() - uids:
            self.remove(uid)

    def update(self, obj: Mapping[str, Any]) -> None:
        """Take over a new or changed object."""
        uid, entry = obj["metadata"]["uid"], _entry_of(obj)
        known = self._entries.get(uid)
        if known is not None and known.name != entry.name:  # a SandboxClaim has adopted the sandbox
            self.remove(uid)
        if entry.is_sandbox:
            self._lost_sandboxes.discard(entry.name)
        self._entries[uid] = entry
        self._uids_by_name.setdefault(entry.name, set()).add(uid)
        self._mark_changed(entry.name)

    def remove(self, uid: str) -> None:
        """Forget an object that was deleted, or that the selector no longer selects."""
        known = self._entries.pop(uid, None)
        if known is not None:
            self._uids_by_name[known.name].discard(uid)
            if known.is_sandbox:
                self._lost_sandboxes.add(known.name)
            self._mark_changed(known.name)

    def take_changes(self) -> list[bytes]:
        """Return the events of all changes that were not returned yet."""
        names, self._changed = self._changed, {}
        self.has_changes.clear()
        return [event for name in names for event in self._event_of(name)]

    def _event_of(self, name: str) -> list[bytes]:
        last, view = self._sent.get(name), self._view_of(name)
        if view == last and view is not None:
            return []
        if view is not None:
            self._sent[name] = view
            return [encode_event(SandboxEventType.STATE, view)]
        self._lost_sandboxes.discard(name)
        self._uids_by_name.pop(name, None)
        if self._sent.pop(name, None) is None or last is None:
            return []
        return [encode_event(SandboxEventType.DELETED, msgspec.structs.replace(last, phase=Phase.DELETING))]

    def _view_of(self, name: str) -> SandboxView | None:
        entries = [self._entries[uid] for uid in sorted(self._uids_by_name.get(name, ()))]
        sandbox = next((entry for entry in entries if entry.is_sandbox), None)
        if sandbox is not None:
            return sandbox.view
        claim = next(iter(entries), None)
        if claim is None:
            return None
        if not claim.is_bound or name in self._lost_sandboxes:
            return claim.view
        # The SandboxClaim was bound before the watch of the sandboxes has reported its sandbox.
        return self._sent.get(name)

    def _mark_changed(self, name: str) -> None:
        self._changed[name] = None
        self.has_changes.set()


class _Entry(NamedTuple):
    """What the list shows of an object, and under which name."""

    name: str
    view: SandboxView
    is_sandbox: bool
    is_bound: bool = False
    """of a SandboxClaim: whether it has a sandbox"""


def _entry_of(obj: Mapping[str, Any]) -> _Entry:
    name = str(obj["metadata"]["name"])
    if obj["kind"] == "SandboxClaim":
        is_bound = not presenters.has_no_sandbox(obj)
        return _Entry(name, presenters.present_sandbox_claim(obj), is_sandbox=False, is_bound=is_bound)
    shown = str(presenters.sandbox_claim_name(obj) or name)
    return _Entry(shown, presenters.present_sandbox(obj), is_sandbox=True)


class ChangeCollector(Protocol):
    """Collects the changes of watched objects, and turns them into events for one client."""

    has_changes: asyncio.Event
    is_finished: bool

    def retain(self, uids: set[str]) -> None:
        """Forget the objects that a complete list did not contain: they were deleted."""

    def update(self, obj: Mapping[str, Any]) -> None:
        """Take over a new or changed object."""

    def remove(self, uid: str) -> None:
        """Forget an object that was deleted, or that the selector no longer selects."""

    def take_changes(self) -> list[bytes]:
        """Return the events of all changes that were not returned yet."""


class ObjectStream:
    """One client that watches objects of several kinds, over any number of watches of the cluster.

    Args:
        cluster: client for the namespace of the objects.
        collector: turns changes into events.
        selectors: label selector of each kind.
        is_list: whether to report when the objects of the first list were sent.
    """

    def __init__(
        self,
        cluster: NamespaceClient,
        collector: ChangeCollector,
        selectors: Mapping[str, str | None],
        *,
        is_list: bool = False,
    ) -> None:
        self._cluster, self._collector, self._selectors = cluster, collector, selectors
        self._is_list = is_list

    async def list_objects(self) -> dict[str, str]:
        """Read all kinds; return the versions to watch from."""
        uids: set[str] = set()
        versions = {}
        for kind, selector in self._selectors.items():
            token = None
            while token is not None or kind not in versions:
                page = await self._cluster.list_page(kind, _PAGE_SIZE, token, selector)
                for obj in page.items:
                    uids.add(obj["metadata"]["uid"])
                    self._collector.update(obj)
                versions[kind], token = page.resource_version, page.continue_token
        self._collector.retain(uids)
        return versions

    async def iter_events(self, versions: dict[str, str]) -> AsyncIterator[bytes]:
        """Iterate over the events until the collector is finished, or for some hours."""
        ends_at = clock.monotonic() + MAX_STREAM_SECONDS
        try:
            for event in self._collector.take_changes():
                yield event
            if self._is_list:
                yield encode_event(SandboxEventType.SYNCED, {})
            while clock.monotonic() < ends_at and not self._collector.is_finished:
                async for event in self._watch_once(versions):
                    yield event
                # The API server ends each watch after some time, and history expires: the list has all.
                versions = await self.list_objects()
        except Exception as error:  # noqa: BLE001 (any failure is reported to the client)
            yield encode_event(SandboxEventType.FAILED, as_api_error(error).problem)

    async def _watch_once(self, versions: dict[str, str]) -> AsyncIterator[bytes]:
        """Watch all kinds until the API server ends a watch."""
        watches = [asyncio.ensure_future(self._watch(kind, version)) for kind, version in versions.items()]
        try:
            while not any(watch.done() for watch in watches) and not self._collector.is_finished:
                changed = asyncio.ensure_future(self._collector.has_changes.wait())
                try:
                    await asyncio.wait(
                        {changed, *watches}, timeout=KEEPALIVE_INTERVAL, return_when=asyncio.FIRST_COMPLETED
                    )
                finally:
                    changed.cancel()
                events = self._collector.take_changes()
                for event in events or [KEEPALIVE_COMMENT]:
                    yield event
            for watch in watches:
                if watch.done():
                    watch.result()
        finally:
            # The generator also ends when the client disconnects; the watches must end with it.
            for watch in watches:
                watch.cancel()
            await asyncio.gather(*watches, return_exceptions=True)

    async def _watch(self, kind: str, version: str) -> None:
        # Called on the event loop. It must not wait for the client: the watch would fall behind.
        def on_event(event_type: str, obj: dict[str, Any]) -> None:
            if event_type == "DELETED":
                self._collector.remove(obj["metadata"]["uid"])
            elif event_type != "BOOKMARK":
                self._collector.update(obj)

        await self._cluster.objects.watch(
            kind,
            on_event,
            resource_version=version,
            namespace=self._cluster.namespace,
            api_version=_api_version(kind),
            label_selector=self._selectors[kind],
        )


def _api_version(kind: str) -> str:
    return API_VERSION if kind == "Sandbox" else EXTENSIONS_API_VERSION
