"""Events enqueue affected objects once, repeated events do not, and lists remove missing objects."""

from __future__ import annotations

import asyncio

from tests.support.sandbox_objects import running_pod, sandbox
from tests.support.virtual_time import run_virtual, virtual_now

from holdfast.controller.controller import Controller
from holdfast.kube import OperationResult

LONG, SHORT = 2.0, 0.02
"""Virtual seconds: longer than any deferred status write, and shorter."""


class Recorder:
    """An API server that accepts every write and records it."""

    def __init__(self, make_box) -> None:
        self.make_box = make_box
        self.wrote = []
        self.version = 100
        self.status = {}

    def answer(self, verb, kind):
        self.wrote.append((verb, kind))
        self.version += 1

    async def create(self, manifest):
        self.answer("create", manifest["kind"])
        metadata = {**manifest["metadata"], "uid": f"u-{self.version}", "resourceVersion": str(self.version)}
        return {**manifest, "metadata": metadata}

    async def patch(self, *, kind, patch, subresource="patch", **_):
        self.answer(subresource, kind)
        if subresource == "patch":
            return None
        merged = {**self.status, **patch["status"]}
        self.status = {key: value for key, value in merged.items() if value is not None}
        return {**self.make_box(str(self.version)), "status": self.status}

    async def delete(self, *, kind, **_):
        self.answer("delete", kind)
        return OperationResult("deleted", {})

    async def get(self, *_, **__):
        return None


def box(version="1"):
    made = sandbox()
    made["metadata"]["resourceVersion"] = version
    return made


def pod(version, **status):
    made = running_pod(box(), **status)
    made["metadata"] |= {"resourceVersion": version, "uid": "u-101"}
    return made


def written_after(*news, pause=LONG, make_box=box):
    """Return the writes after these events."""

    async def scenario():
        server = Recorder(make_box)
        controller = Controller(server, clock=virtual_now)
        running = asyncio.create_task(controller.run())
        for each in news:
            each(controller)
            await asyncio.sleep(pause)
            for _ in range(20):
                await asyncio.sleep(0)
        running.cancel()
        return server.wrote

    return run_virtual(scenario())


def test_new_sandbox_gets_pod_and_status():
    assert written_after(lambda c: c.on_update(box())) == [
        ("create", "Pod"),
        ("status", "Sandbox"),
    ]


def test_watch_echo_of_own_write_does_not_requeue():
    first = [("create", "Pod"), ("status", "Sandbox")]
    echo = [
        lambda c: c.on_update(box("102")),
        lambda c: c.on_update(pod("101")),
    ]
    assert written_after(lambda c: c.on_update(box()), *echo) == first


WAITING = {"phase": "Pending", "podIP": None, "podIPs": None, "conditions": []}
IMAGE = {"name": "main", "state": {"waiting": {"reason": "ErrImagePull", "message": "none"}}}
ON_THE_WAY = (
    lambda c: c.on_update(box()),
    lambda c: c.on_update(pod("110", **WAITING)),
    lambda c: c.on_update(pod("111", **WAITING, containerStatuses=[IMAGE])),
)


def test_intermediate_status_is_delayed_until_final_state():
    assert [verb for verb, _ in written_after(*ON_THE_WAY, pause=SHORT)] == ["create"]
    ready = lambda c: c.on_update(pod("112"))  # noqa: E731
    assert [verb for verb, _ in written_after(*ON_THE_WAY, ready, pause=SHORT)] == ["create", "status"]


def test_changed_message_is_written_eventually():
    assert [verb for verb, _ in written_after(*ON_THE_WAY, pause=LONG)] == [
        "create",
        "status",
        "status",
        "status",
    ]


def test_ready_pod_is_written_immediately_in_one_status():
    news = [
        lambda c: c.on_update(box()),
        lambda c: c.on_update(pod("110")),
    ]
    assert written_after(*news, pause=SHORT) == [("create", "Pod"), ("status", "Sandbox")]


def test_unready_pod_is_written_immediately():
    waiting = {"conditions": [{"type": "Ready", "status": "False"}]}
    news = [
        lambda c: c.on_update(box()),
        lambda c: c.on_update(pod("110")),
    ]
    lost = lambda c: c.on_update(pod("111", **waiting))  # noqa: E731
    assert [verb for verb, _ in written_after(*news, lost, pause=SHORT)] == ["create", "status", "status"]


def test_relist_deletes_missing_objects_unless_newer():
    news = [
        lambda c: c.on_update(box()),
        lambda c: c.on_update(pod("110")),
    ]
    stale = lambda c: c.prune_missing("Pod", None, set(), list_version=105)  # noqa: E731
    assert len(written_after(*news, stale)) == 3
    fresh = lambda c: c.prune_missing("Pod", None, set(), list_version=200)  # noqa: E731
    assert written_after(*news, fresh)[3:5] == [("create", "Pod"), ("status", "Sandbox")]


def test_relist_of_other_namespace_is_ignored():
    news = [
        lambda c: c.on_update(box()),
        lambda c: c.on_update(pod("110")),
    ]
    other = lambda c: c.prune_missing("Pod", "elsewhere", set(), list_version=200)  # noqa: E731
    assert len(written_after(*news, other)) == 3


def test_deleted_pod_is_recreated_and_deleted_sandbox_is_ignored():
    news = [
        lambda c: c.on_update(box()),
        lambda c: c.on_delete(pod("120")),
    ]
    assert written_after(*news)[2] == ("create", "Pod")
    news = [
        lambda c: c.on_update(box()),
        lambda c: c.on_delete(box("130")),
        lambda c: c.on_delete(pod("140")),
    ]
    assert len(written_after(*news)) == 2


def node(size):
    return {"status": {"capacity": {"ephemeral-storage": size}}}


def test_oversized_pvc_is_reconciled_when_capacity_grows():
    asking = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Ti"}}}
    volume = {"metadata": {"name": "workspace"}, "spec": {**asking, "storageClassName": "local-path"}}

    def large(version="1"):
        made = sandbox(volumeClaimTemplates=[volume])
        made["metadata"]["resourceVersion"] = version
        return made

    news = [
        lambda c: c.update_nodes([node("100Gi")]),
        lambda c: c.on_update(large()),
        lambda c: c.update_nodes([node("100Gi")]),
    ]
    grown = [*news, lambda c: c.update_nodes([node("100Gi"), node("2Ti")])]
    assert ("create", "Pod") not in written_after(*news, make_box=large)
    assert ("create", "Pod") in written_after(*grown, make_box=large)


def test_unexpected_error_is_logged_once_with_traceback(monkeypatch, caplog):
    monkeypatch.setattr(Recorder, "create", broken)
    written_after(lambda c: c.on_update(box()), pause=10.0)
    told = [record for record in caplog.records if "the unforeseen" in record.getMessage()]
    assert len(told) > 2
    assert [bool(record.exc_info) for record in told[:3]] == [True, False, False]


async def broken(*_):
    raise ValueError("the unforeseen")
