"""News wake whoever has to look, once; echoes wake nobody; what a list does not have is gone."""

from __future__ import annotations

import asyncio

import pytest
from tests.support.sandboxes import living_pod, sandbox

from holdfast.controller import sandbox_look
from holdfast.controller.desk import Desk
from holdfast.retry import exponential

LONG, SHORT = 0.3, 0.02
"""Pauses after which everything has been said, and after which nothing has that can wait."""


@pytest.fixture(autouse=True)
def _hasty(monkeypatch):
    """What can wait does so for a moment."""
    monkeypatch.setattr(sandbox_look, "WORDS_WAIT", 0.05)


@pytest.fixture
def patient(_hasty, monkeypatch):
    """What can wait does so for longer than any test takes."""
    monkeypatch.setattr(sandbox_look, "WORDS_WAIT", 600.0)


class Recorder:
    """A server that answers every write with what it was given, and counts."""

    def __init__(self) -> None:
        self.wrote = []
        self.version = 100
        self.status = {}

    def answer(self, verb, about):
        self.wrote.append((verb, about["kind"] if isinstance(about, dict) else about.kind))
        self.version += 1

    async def create(self, manifest):
        self.answer("create", manifest)
        metadata = {**manifest["metadata"], "uid": f"u-{self.version}", "resourceVersion": str(self.version)}
        return {**manifest, "metadata": metadata}

    async def patch(self, target, patch):
        self.answer("patch", target)

    async def patch_status(self, target, patch):
        self.answer("status", target)
        merged = {**self.status, **patch["status"]}
        self.status = {key: value for key, value in merged.items() if value is not None}
        return {**box(str(self.version)), "status": self.status}

    async def delete(self, target, propagation, version):
        self.answer("delete", target)
        return True

    async def read(self, kind, namespace, name):
        return None


def box(version="1"):
    made = sandbox()
    made["metadata"]["resourceVersion"] = version
    return made


def pod(version, **status):
    made = living_pod(box(), **status)
    made["metadata"] |= {"resourceVersion": version, "uid": "u-101"}
    return made


def worked(*news, pause=LONG):
    """What is written when these news arrive, one after the other."""

    async def scenario():
        server = Recorder()
        desk = Desk(server)
        running = asyncio.create_task(desk.run())
        for each in news:
            each(desk)
            await asyncio.sleep(pause)
            for _ in range(20):
                await asyncio.sleep(0)
        running.cancel()
        return server.wrote

    return asyncio.run(scenario())


def test_a_new_sandbox_gets_its_pod_and_a_status():
    assert worked(lambda desk: desk.changed(box())) == [("create", "Pod"), ("status", "Sandbox")]


def test_the_watchs_echo_of_our_own_writes_wakes_nobody():
    first = [("create", "Pod"), ("status", "Sandbox")]
    echo = [lambda desk: desk.changed(box("102")), lambda desk: desk.changed(pod("101"))]
    assert worked(lambda desk: desk.changed(box()), *echo) == first


WAITING = {"phase": "Pending", "podIP": None, "podIPs": None, "conditions": []}
IMAGE = {"name": "main", "state": {"waiting": {"reason": "ErrImagePull", "message": "none"}}}
ON_THE_WAY = (
    lambda desk: desk.changed(box()),
    lambda desk: desk.changed(pod("110", **WAITING)),
    lambda desk: desk.changed(pod("111", **WAITING, containerStatuses=[IMAGE])),
)


@pytest.mark.usefixtures("patient")
def test_what_is_said_on_the_way_waits_for_the_end_of_it():
    assert [verb for verb, _ in worked(*ON_THE_WAY, pause=SHORT)] == ["create"]
    ready = lambda desk: desk.changed(pod("112"))  # noqa: E731
    assert [verb for verb, _ in worked(*ON_THE_WAY, ready, pause=SHORT)] == ["create", "status"]


def test_other_words_are_written_in_the_end():
    assert [verb for verb, _ in worked(*ON_THE_WAY, pause=LONG)] == ["create", "status", "status", "status"]


@pytest.mark.usefixtures("patient")
def test_a_pod_that_became_ready_is_one_status_at_once():
    news = [lambda desk: desk.changed(box()), lambda desk: desk.changed(pod("110"))]
    assert worked(*news, pause=SHORT) == [("create", "Pod"), ("status", "Sandbox")]


@pytest.mark.usefixtures("patient")
def test_a_pod_that_is_no_longer_ready_is_told_of_at_once():
    waiting = {"conditions": [{"type": "Ready", "status": "False"}]}
    news = [lambda desk: desk.changed(box()), lambda desk: desk.changed(pod("110"))]
    lost = lambda desk: desk.changed(pod("111", **waiting))  # noqa: E731
    assert [verb for verb, _ in worked(*news, lost, pause=SHORT)] == ["create", "status", "status"]


def test_what_a_list_does_not_have_is_gone_unless_it_is_newer_than_the_list():
    news = [lambda desk: desk.changed(box()), lambda desk: desk.changed(pod("110"))]
    stale = lambda desk: desk.missing("Pod", None, set(), as_of=105)  # noqa: E731
    assert len(worked(*news, stale)) == 3
    fresh = lambda desk: desk.missing("Pod", None, set(), as_of=200)  # noqa: E731
    assert worked(*news, fresh)[3:5] == [("create", "Pod"), ("status", "Sandbox")]


def test_a_list_of_another_namespace_says_nothing_of_this_one():
    news = [lambda desk: desk.changed(box()), lambda desk: desk.changed(pod("110"))]
    other = lambda desk: desk.missing("Pod", "elsewhere", set(), as_of=200)  # noqa: E731
    assert len(worked(*news, other)) == 3


def test_a_pod_that_is_gone_is_made_again_and_a_sandbox_that_is_gone_is_left():
    news = [lambda desk: desk.changed(box()), lambda desk: desk.gone(pod("120"))]
    assert worked(*news)[2] == ("create", "Pod")
    news = [
        lambda desk: desk.changed(box()),
        lambda desk: desk.gone(box("130")),
        lambda desk: desk.gone(pod("140")),
    ]
    assert len(worked(*news)) == 2


def node(size):
    return {"status": {"capacity": {"ephemeral-storage": size}}}


def test_a_claim_larger_than_the_disk_is_looked_at_again_when_a_disk_is_larger(monkeypatch):
    asking = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Ti"}}}
    volume = {"metadata": {"name": "workspace"}, "spec": {**asking, "storageClassName": "local-path"}}

    def large(version="1"):
        made = sandbox(volumeClaimTemplates=[volume])
        made["metadata"]["resourceVersion"] = version
        return made

    monkeypatch.setattr(f"{__name__}.box", large)
    news = [
        lambda desk: desk.disks([node("100Gi")]),
        lambda desk: desk.changed(large()),
        lambda desk: desk.disks([node("100Gi")]),
    ]
    assert ("create", "Pod") not in worked(*news)
    assert ("create", "Pod") in worked(*news, lambda desk: desk.disks([node("100Gi"), node("2Ti")]))


def test_where_an_unforeseen_error_came_from_is_told_once(monkeypatch, caplog):
    monkeypatch.setattr("holdfast.controller.queue._PAUSES", exponential(0.01, cap=0.01))
    monkeypatch.setattr(Recorder, "create", broken)
    worked(lambda desk: desk.changed(box()))
    told = [record for record in caplog.records if "the unforeseen" in record.getMessage()]
    assert len(told) > 2
    assert [bool(record.exc_info) for record in told[:3]] == [True, False, False]


async def broken(*_):
    raise ValueError("the unforeseen")
