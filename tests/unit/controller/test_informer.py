"""Watches forward events to the controller, resume at the last version, and list when it has expired."""

from __future__ import annotations

import asyncio

import pytest
from tests.support.sandbox_objects import sandbox
from tests.support.virtual_time import run_virtual

from holdfast.controller.controller import Controller
from holdfast.controller.informer import CRD_NAMES, RESYNC_INTERVAL, WATCHED_RESOURCES, Informer
from holdfast.errors import ApiRequestRejectedError, TemporaryError
from holdfast.kube.objects import ObjectList
from holdfast.retry.clock import testing_mode


class Server:
    """Serves one recorded stream per connection, and records the requests."""

    def __init__(self, *streams) -> None:
        self.streams, self.asked, self.lists = list(streams), [], []
        self.there, self.ended = [], asyncio.Event()

    async def watch(self, kind, on_event, *, resource_version, **_):
        if kind != "Sandbox":
            await asyncio.Event().wait()
        self.asked.append(resource_version)
        if not self.streams:
            self.ended.set()
            await asyncio.Event().wait()
        for what, found in (stream := self.streams.pop(0))[:-1]:
            on_event(what, found)
        if isinstance(stream[-1], Exception):
            raise stream[-1]
        return stream[-1]

    async def list(self, kind, **_):
        self.lists.append(kind)
        return ObjectList([dict(each) for each in self.there if each["kind"] == kind], "50")


def box(name, version):
    made = sandbox()
    made["metadata"] |= {"name": name, "uid": f"u-{name}", "resourceVersion": version}
    return made


def run_informer(*streams, there=(), later=()):
    """Run the informer over recorded streams; returns the cached names and the server."""

    async def scenario():
        server, controller = Server(*streams), Controller(objects=None)
        informer = Informer(server, controller, (), asyncio.Event())
        server.there = list(there)
        await informer.list_all()
        server.lists, server.there = [], list(later)
        running = asyncio.create_task(informer.run_watches())
        ended = asyncio.create_task(server.ended.wait())
        await asyncio.wait({running, ended}, return_when=asyncio.FIRST_COMPLETED)
        failed = running.exception() if running.done() else None
        running.cancel()
        ended.cancel()
        if failed:
            raise failed
        return sorted(each["metadata"]["name"] for each in controller.cache.iter_kind("Sandbox")), server

    with testing_mode():
        return asyncio.run(scenario())


def test_events_reach_controller_and_watch_resumes_at_last_version():
    first = [("ADDED", box("a", "61")), ("ADDED", box("b", "62")), True]
    second = [("DELETED", box("a", "63")), ("BOOKMARK", {"metadata": {"resourceVersion": "70"}}), True]
    names, server = run_informer(first, second)
    assert names == ["b"]
    assert server.asked == ["50", "62", "70"]
    assert server.lists == []


def test_broken_connection_resumes_from_last_event():
    names, server = run_informer(
        [("ADDED", box("a", "61")), TemporaryError("cut")], [TemporaryError("refused")]
    )
    assert names == ["a"]
    assert server.asked == ["50", "61", "61"]


def test_expired_version_relists_and_reports_deletions():
    names, server = run_informer([False], there=[box("a", "40"), box("b", "41")], later=[box("b", "41")])
    assert names == ["b"]
    assert server.lists == ["Sandbox"]
    assert server.asked == ["50", "50"]


def test_rejected_watch_ends_all_watches():
    with pytest.raises(ExceptionGroup) as caught:
        run_informer([ApiRequestRejectedError("no right to")])
    assert caught.group_contains(ApiRequestRejectedError)


def test_owned_kinds_are_watched_by_label():
    labelled = {each.kind for each in WATCHED_RESOURCES if each.label_selector}
    assert labelled == {"Pod", "Service", "PersistentVolumeClaim"}
    assert len(CRD_NAMES) == 4


class BreakingServer(Server):
    """Resets each watch after some seconds, and records when watches start."""

    def __init__(self, seconds, watches) -> None:
        super().__init__()
        self.seconds, self.watches, self.started = seconds, watches, []

    async def watch(self, kind, on_event, *, resource_version, **_):
        if kind != "Sandbox":
            await asyncio.Event().wait()
        self.started.append(asyncio.get_running_loop().time())
        if len(self.started) == self.watches:
            self.ended.set()
            await asyncio.Event().wait()
        await asyncio.sleep(self.seconds)
        raise TemporaryError("reset")


def longest_pause(seconds):
    """Return the longest time between the end of a watch and the start of the next."""

    async def scenario():
        server = BreakingServer(seconds, watches=10)
        informer = Informer(server, Controller(objects=None), (), asyncio.Event())
        await informer.list_all()
        running = asyncio.create_task(informer.run_watches())
        await server.ended.wait()
        running.cancel()
        return max(b - a - seconds for a, b in zip(server.started, server.started[1:], strict=False))

    return run_virtual(scenario())


def test_watch_that_lasted_resets_backoff():
    assert longest_pause(0.0) > 5.0
    assert longest_pause(60.0) < 0.5


def test_only_changes_after_initial_list_are_corrections():
    async def scenario():
        server, controller = Server(), Controller(objects=None)
        informer = Informer(server, controller, (), asyncio.Event())
        server.there = [box("a", "40"), box("b", "41")]
        await informer.list_all()
        before = controller.metrics.encode().decode()
        server.there = [box("a", "45")]
        running = asyncio.create_task(informer.run_resync())
        await asyncio.sleep(RESYNC_INTERVAL + 1)
        running.cancel()
        return before, controller.metrics.encode().decode()

    before, after = run_virtual(scenario())
    name = "holdfast_controller_resync_corrections_total"
    assert f"{name}{{" not in before
    assert f'{name}{{action="updated",kind="Sandbox"}} 1.0' in after
    assert f'{name}{{action="removed",kind="Sandbox"}} 1.0' in after
