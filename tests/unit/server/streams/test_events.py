"""An event stream sends each state, only the latest to a slow client, and ends with the deletion."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace

import pytest
from tests.support.sandbox_objects import sandbox
from tests.support.virtual_time import run_virtual

from holdfast.errors import TemporaryError
from holdfast.server.sandboxes import SandboxLookup
from holdfast.server.streams import events


def version(number):
    obj = sandbox()
    obj["metadata"]["resourceVersion"] = number
    return obj


class WatchedObjects:
    """Runs `script` as the watch of an object."""

    def __init__(self, script) -> None:
        self.script = script

    async def wait(self, kind, name, until, *, namespace, api_version, deadline):
        await self.script(until)


async def observed(script, *, pause=0.0):
    """Return the versions that a client receives that pauses after each of them."""
    cluster = SimpleNamespace(objects=WatchedObjects(script), namespace="ns")
    received = []
    changes = events._watch_changes(
        SimpleNamespace(cluster=cluster), SandboxLookup(version("1"), None), lambda: 10.0
    )
    async for change in changes:
        received.append(change and change.sandbox["metadata"]["resourceVersion"])
        await asyncio.sleep(pause)
    return [each for each in received if each]


def test_each_state_is_sent_until_deletion():
    async def script(observe):
        for number in ("1", "2", "3"):
            assert not observe(version(number)).done
            await asyncio.sleep(0.01)
        assert observe(None).done

    assert run_virtual(observed(script)) == ["1", "2", "3"]


def test_slow_client_gets_latest_state_only():
    async def script(observe):
        observe(version("1"))
        await asyncio.sleep(0.01)
        for number in ("2", "3", "4"):
            observe(version(number))

    assert run_virtual(observed(script, pause=0.05)) == ["1", "4"]


def test_failed_watch_is_reported_after_last_state():
    async def script(observe):
        observe(version("1"))
        raise TemporaryError("lost")

    with pytest.raises(TemporaryError, match="lost"):
        run_virtual(observed(script))


def test_failure_to_read_first_state_is_sent_as_problem():
    class Service:
        async def present(self, lookup):
            raise TemporaryError("the cluster does not respond")

    async def run():
        return [event async for event in events._iter_events(Service(), "a", SandboxLookup(sandbox(), None))]

    (event,) = run_virtual(run())
    assert event.startswith(b"event: problem\n")
    assert b"the cluster does not respond" in event


def test_closed_stream_cancels_watch():
    cancelled = []

    async def script(observe):
        observe(version("1"))
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.append(True)
            raise

    async def run():
        cluster = SimpleNamespace(objects=WatchedObjects(script), namespace="ns")
        changes = events._watch_changes(
            SimpleNamespace(cluster=cluster), SandboxLookup(version("1"), None), lambda: 10.0
        )
        await anext(changes)
        await changes.aclose()

    run_virtual(run())
    assert cancelled == [True]
