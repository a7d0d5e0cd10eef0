"""Operations on several sandboxes and the watch of all of them, against the real server."""

import asyncio
import threading

import pytest

from holdfast.errors import PermanentError, SandboxNotFoundError, TemporaryError
from holdfast.events import RetryScheduled
from holdfast.gateway import Gateway

pytestmark = [pytest.mark.apiserver, pytest.mark.timeout(180)]


def create(sandboxes, *names, **options):
    for name in names:
        sandboxes.create(name, "app:1", workspace=False, **options)
    sandboxes.wait(names, timeout=60).raise_for_failures()


def test_operations_on_several_sandboxes_report_each_outcome(sandboxes):
    # Names of this test alone: no garbage collector removes the pods of other tests' sandboxes here.
    create(sandboxes, "bulk-a", "bulk-b", "bulk-c", labels={"team": "blue"})
    seen = []
    result = sandboxes.suspend(["bulk-a", "none", "bulk-b"], wait=True, timeout=60, on_outcome=seen.append)
    assert [(each.name, each.result and each.result.phase) for each in result] == [
        ("bulk-a", "Suspended"), ("none", None), ("bulk-b", "Suspended"),
    ]  # fmt: skip
    assert isinstance(result.outcomes[1].error, SandboxNotFoundError)
    assert sorted(each.name for each in seen) == ["bulk-a", "bulk-b", "none"]
    with pytest.raises(PermanentError, match="1 of 3 sandboxes: failed: none"):
        result.raise_for_failures()
    assert [each.result.phase for each in sandboxes.resume(["bulk-a", "bulk-b"], wait=True, timeout=60)] == [
        "Ready"
    ] * 2
    selected = [view.name for view in sandboxes.list(selector="team=blue")]
    deleted = sandboxes.delete(selected, wait=True, timeout=60)
    assert [each.result.deleted for each in deleted] == [True] * 3
    assert sandboxes.delete(["bulk-a"], ignore_missing=True).outcomes[0].result.deleted is False
    sandboxes.wait_gone(selected, timeout=60).raise_for_failures()
    assert list(sandboxes) == []


def test_timeout_limits_the_whole_operation(sandboxes):
    create(sandboxes, "t-a", "t-b")
    result = sandboxes.wait(["t-a", "t-b"], "Suspended", timeout=0.5)
    assert {each.error.code for each in result} == {"wait-timeout"}


def test_asynchronous_client_has_the_same_operations(source, sandboxes):
    create(sandboxes, "s-a", "s-b")

    async def run():
        async with source.gateway.sandboxes() as found:
            (await found.suspend(["s-a", "s-b"], wait=True, timeout=60)).raise_for_failures()
            (await found.delete(["s-a", "s-b"], wait=True, timeout=60)).raise_for_failures()
            return [view.name async for view in found]

    assert asyncio.run(run()) == []


class Watching:
    """A watch in a thread; `next(name)` returns the next change of a sandbox."""

    def __init__(self, gateway, **options):
        self.changes, self._arrived = [], threading.Condition()
        self._sandboxes = gateway.sandboxes()
        self._stream = self._sandboxes.watch(**options)
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self):
        for change in self._stream:
            with self._arrived:
                self.changes.append(change)
                self._arrived.notify_all()

    def wait_for(self, kind, name, phase=None):
        def found():
            return next(
                (
                    each
                    for each in self.changes
                    if (each.type, each.sandbox.name) == (kind, name) and phase in (None, each.sandbox.phase)
                ),
                None,
            )

        with self._arrived:
            assert self._arrived.wait_for(found, timeout=60), self.changes
            return found()


def test_watch_reports_existing_sandboxes_changes_and_deletions(source, sandboxes):
    create(sandboxes, "w-a", labels={"team": "blue"})
    everything, blue = Watching(source.gateway), Watching(source.gateway, selector="team=blue")
    for watching in (everything, blue):
        assert watching.wait_for("added", "w-a").sandbox.phase == "Ready"
    create(sandboxes, "w-b")
    everything.wait_for("added", "w-b")
    everything.wait_for("modified", "w-b", "Ready")
    sandboxes.delete(["w-a", "w-b"], wait=True, timeout=60).raise_for_failures()
    for watching in (everything, blue):
        assert watching.wait_for("deleted", "w-a").sandbox.phase == "Deleting"
    everything.wait_for("deleted", "w-b")
    assert {each.sandbox.name for each in blue.changes} == {"w-a"}


def test_watch_survives_a_restart_of_the_server_and_reports_what_it_missed(source, sandboxes):
    create(sandboxes, "stays", "goes")
    retries = []
    gateway = Gateway(source.name, listener=retries.append)
    watching = Watching(gateway)
    watching.wait_for("added", "stays")
    watching.wait_for("added", "goes")
    seen = len(watching.changes)
    source.kill()
    source.start()
    sandboxes.delete(["goes"]).raise_for_failures()
    watching.wait_for("deleted", "goes")
    sandboxes.suspend(["stays"])
    watching.wait_for("modified", "stays", "Suspended")
    assert any(isinstance(event, RetryScheduled) for event in retries)
    assert [each for each in watching.changes[seen:] if each.type == "added"] == []


def test_watch_of_an_unreachable_gateway_fails(source):
    source.kill()
    try:
        with pytest.raises(TemporaryError, match="does not answer"):
            next(source.gateway.sandboxes().watch())
    finally:
        source.start()
