"""Changes that a watch of all sandboxes delivers when its connection fails."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from types import SimpleNamespace

import msgspec
from tests.support.virtual_time import run_virtual

from holdfast.api import Phase, SandboxView
from holdfast.client.list_watch import watch_list

SYNCED = b"event: synced\ndata: {}\n\n"
PROBLEM = b'event: problem\ndata: {"code": "x", "message": "the watch ended", "hint": ""}\n\n'


def event(name, phase, kind="sandbox"):
    view = SandboxView(name=name, id="1", phase=Phase(phase))
    return f"event: {kind}\ndata: {msgspec.json.encode(view).decode()}\n\n".encode()


class ScriptedConnections:
    """A transport with one list of chunks for each connection; the last connection stays open."""

    on_retry = None
    gateway = "dev"

    def __init__(self, *connections):
        self._connections = list(connections)

    @asynccontextmanager
    async def stream(self, method, path, *, query):
        assert (method, path, query) == ("GET", "/v1/watch/sandboxes", None)
        yield SimpleNamespace(content=self)

    async def iter_any(self):
        for chunk in self._connections.pop(0):
            yield chunk
        if not self._connections:
            await asyncio.Event().wait()


def changes_of(*connections, count):
    """Return type, name and phase of the first changes."""

    async def run():
        changes = watch_list(ScriptedConnections(*connections), None, 300.0)
        found = [await anext(changes) for _ in range(count)]
        await changes.aclose()
        return [(change.type, change.sandbox.name, change.sandbox.phase.value) for change in found]

    return run_virtual(run())


def test_changes_in_the_chunk_of_a_problem_are_delivered():
    first = [
        event("a", "Pending") + event("b", "Ready") + SYNCED,
        event("a", "Ready") + event("b", "Deleting", "deleted") + PROBLEM,
    ]
    assert changes_of(first, [event("a", "Ready") + event("c", "Ready") + SYNCED], count=5) == [
        ("added", "a", "Pending"),
        ("added", "b", "Ready"),
        ("modified", "a", "Ready"),
        ("deleted", "b", "Deleting"),
        ("added", "c", "Ready"),
    ]


def test_sandbox_deleted_during_an_interruption_is_reported():
    first, second = [event("a", "Ready") + event("b", "Ready") + SYNCED], [event("b", "Ready") + SYNCED]
    assert changes_of(first, second, count=3)[2:] == [("deleted", "a", "Deleting")]
