"""Watches: what they tell reaches the desk, they go on where they ended, and list where they cannot."""

from __future__ import annotations

import asyncio

import pytest
from tests.support.sandboxes import sandbox

from holdfast.controller.desk import Desk
from holdfast.controller.feed import Feed
from holdfast.controller.lists import Lists
from holdfast.controller.watched import CRDS, WATCHED
from holdfast.errors import ClusterRefusedError, TemporaryError
from holdfast.kube.changes import Listed
from holdfast.retry.clock import testing_mode


class Server:
    """Plays streams of sandboxes, one for each connection, and keeps what it was asked for."""

    def __init__(self, *streams) -> None:
        self.streams, self.asked, self.lists = list(streams), [], []
        self.there, self.ended = [], asyncio.Event()

    async def follow(self, kind, told, *, version, **_):
        if kind != "Sandbox":
            await asyncio.Event().wait()
        self.asked.append(version)
        if not self.streams:
            self.ended.set()
            await asyncio.Event().wait()
        for what, found in (stream := self.streams.pop(0))[:-1]:
            told(what, found)
        if isinstance(stream[-1], Exception):
            raise stream[-1]
        return stream[-1]

    async def list(self, kind, **_):
        self.lists.append(kind)
        return Listed([dict(each) for each in self.there if each["kind"] == kind], "50")


def box(name, version):
    made = sandbox()
    made["metadata"] |= {"name": name, "uid": f"u-{name}", "resourceVersion": version}
    return made


def watched(*streams, there=(), later=()):
    """The names that the desk knows in the end, and the server."""

    async def scenario():
        server, desk = Server(*streams), Desk(writer=None)
        lists = Lists(server, desk, ())
        server.there = list(there)
        await lists.all()
        server.lists, server.there = [], list(later)
        running = asyncio.create_task(Feed(server, desk, lists, stop=asyncio.Event()).run())
        ended = asyncio.create_task(server.ended.wait())
        await asyncio.wait({running, ended}, return_when=asyncio.FIRST_COMPLETED)
        failed = running.exception() if running.done() else None
        running.cancel()
        ended.cancel()
        if failed:
            raise failed
        return sorted(each["metadata"]["name"] for each in desk.cache.all("Sandbox")), server

    with testing_mode():
        return asyncio.run(scenario())


def test_changes_reach_the_desk_and_a_stream_goes_on_where_it_ended():
    first = [("ADDED", box("a", "61")), ("ADDED", box("b", "62")), True]
    second = [("DELETED", box("a", "63")), ("BOOKMARK", {"metadata": {"resourceVersion": "70"}}), True]
    names, server = watched(first, second)
    assert names == ["b"]
    assert server.asked == ["50", "62", "70"]
    assert server.lists == []


def test_a_connection_that_breaks_is_made_again_from_the_last_change():
    names, server = watched([("ADDED", box("a", "61")), TemporaryError("cut")], [TemporaryError("refused")])
    assert names == ["a"]
    assert server.asked == ["50", "61", "61"]


def test_a_place_that_is_too_old_brings_a_list_which_tells_what_is_gone():
    names, server = watched([False], there=[box("a", "40"), box("b", "41")], later=[box("b", "41")])
    assert names == ["b"]
    assert server.lists == ["Sandbox"]
    assert server.asked == ["50", "50"]


def test_a_refusal_ends_all_watches():
    with pytest.raises(ExceptionGroup) as caught:
        watched([ClusterRefusedError("no right to")])
    assert caught.group_contains(ClusterRefusedError)


def test_what_is_no_business_of_ours_is_not_asked_for():
    labelled = {each.plural for each in WATCHED if each.labels}
    assert labelled == {"pods", "services", "persistentvolumeclaims", "networkpolicies"}
    assert len(CRDS) == 4
