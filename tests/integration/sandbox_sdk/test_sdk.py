"""The SDK against the real server on a real API server: what it makes, waits for, lists and takes away."""

import asyncio
import threading
from datetime import UTC, datetime, timedelta

import pytest
from tests.support.controllers import ended

from holdfast import Sandbox
from holdfast.errors import (
    ObjectConflictError,
    SandboxMissingError,
    UsageError,
    WaitFailedError,
    WaitTimeoutError,
)
from holdfast.sandbox.sdk import AsyncSandbox, watching
from holdfast.sandbox.sdk.problems import NotReachedError

pytestmark = pytest.mark.apiserver


def test_a_sandbox_is_made_once_and_waited_for(boxes):
    box = boxes.sandbox("once")
    assert isinstance(box, Sandbox)
    first = box.create("app:1", env={"A": "b"}, workspace=False)
    assert box.made
    heard = []
    view = box.wait(timeout=60, told=heard.append)
    assert (view.phase, view.pod_ip) == ("Ready", "10.9.0.1")
    assert heard[-1] == view
    assert box.create("app:1", env={"A": "b"}, workspace=False).id == first.id
    assert not box.made
    with pytest.raises(ObjectConflictError, match="env"):
        box.create("app:1", env={"A": "c"}, workspace=False)


def test_suspend_resume_and_delete_are_seen_by_events(boxes):
    box = boxes.create("moves", "app:1", workspace=False)
    box.wait(timeout=60)
    box.suspend()
    assert box.wait("suspended", timeout=60).pod_ip is None
    with pytest.raises(WaitFailedError, match="Suspended"):
        box.wait(timeout=60)
    box.resume()
    assert box.wait(timeout=60).phase == "Ready"
    assert box.delete().deleted
    box.wait_gone(timeout=60)
    assert not box.exists()
    with pytest.raises(SandboxMissingError):
        box.delete()
    assert not box.delete(ignore_missing=True).deleted


def test_pages_are_walked_and_labels_chosen(boxes, source):
    for number in range(5):
        boxes.create(f"page-{number}", "app:1", workspace=False, labels={"team": f"t{number % 2}"})

    async def names(**options):
        async with source.gateway.sandboxes() as found:
            return [view.name async for view in found.list(**options)]

    assert asyncio.run(names(page=2)) == [f"page-{number}" for number in range(5)]
    assert asyncio.run(names(label="team=t1")) == ["page-1", "page-3"]
    assert [view.name for view in boxes] == [f"page-{number}" for number in range(5)]


def test_many_at_once_from_one_loop(source, boxes):
    async def one(found, number):
        box = await found.create(f"many-{number}", "app:1", workspace=False)
        assert isinstance(box, AsyncSandbox)
        return (await box.wait(timeout=60)).phase

    async def all_of_them():
        async with source.gateway.sandboxes() as found:
            return await asyncio.gather(*(one(found, number) for number in range(12)))

    assert set(asyncio.run(all_of_them())) == {"Ready"}


def test_a_fresh_one_is_gone_after_its_block(boxes):
    with boxes.fresh("app:1", prefix="mine", workspace=False, timeout=60) as box:
        assert box.name.startswith("mine-")
        assert box.get().phase == "Ready"
    box.wait_gone(timeout=60)


def test_a_wait_outlives_the_server(source, boxes):
    box = boxes.create("outlives", "app:1", workspace=False)
    box.wait(timeout=60)
    found = []
    first = threading.Event()

    def told(_view):
        first.set()

    waiting = threading.Thread(target=lambda: found.append(box.wait("Suspended", timeout=90, told=told)))
    waiting.start()
    assert first.wait(30)
    source.kill()
    try:
        with pytest.raises(NotReachedError, match="gateway source does not answer"):
            source.gateway.sandbox("outlives").get()
    finally:
        source.start()
    source.gateway.sandbox("outlives").suspend()
    waiting.join(90)
    assert [view.phase for view in found] == ["Suspended"]


def test_a_name_that_a_foreign_pod_has_is_said_within_seconds(boxes, source, kube_server):
    from holdfast.kube import Objects, api_client

    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "taken", "namespace": source.namespace},
        "spec": {"automountServiceAccountToken": False, "containers": [{"name": "c", "image": "x:1"}]},
    }
    with api_client(kube_server.kubeconfig) as api:
        Objects(api).create(pod)
    box = boxes.create("taken", "app:1", workspace=False)
    with pytest.raises(WaitFailedError, match="taken"):
        box.wait(timeout=60)


@pytest.mark.parametrize("failed_pods", ["Recreate", "Keep"])
def test_a_failed_pod_ends_a_wait_only_where_no_new_one_comes(boxes, source, kube_server, failed_pods):
    from holdfast.kube import Objects, api_client

    name = f"fails-{failed_pods.lower()}"
    box = boxes.create(name, "app:1", workspace=False, failed_pods=failed_pods)
    box.wait(timeout=60)
    with api_client(kube_server.kubeconfig) as api:
        place = {"namespace": source.namespace, "subresource": "status"}
        # Times are whole seconds: from now the pause may be over at once, and nobody would see the failure.
        failed = ended("Failed", 7, datetime.now(UTC) + timedelta(seconds=2))
        Objects(api).patch("Pod", name, {"status": failed}, **place)
    box.wait("Failed", timeout=60)
    if failed_pods == "Keep":
        with pytest.raises(WaitFailedError, match="exit code 7"):
            box.wait(timeout=60)
    else:
        assert box.wait(timeout=60).phase == "Ready"


def test_deleted_and_made_again_it_waits_for_what_the_former_one_left(
    boxes, source, kube_server, monkeypatch
):
    from holdfast.kube import Objects, api_client

    place = {"namespace": source.namespace}
    box = boxes.create("again", "app:1")
    box.wait(timeout=60)
    box.delete()
    box.wait_gone(timeout=60)
    monkeypatch.setattr(watching, "DOUBT_SECONDS", 0.2)  # what is doubtful ends the wait long before it goes
    heard = []
    with api_client(kube_server.kubeconfig) as api:
        objects = Objects(api)
        former = objects.get("PersistentVolumeClaim", "workspace-again", **place)
        # What the garbage collector does: the pod goes, and the claim stays as long as it is protected.
        objects.delete("Pod", "again", **place)
        objects.delete("PersistentVolumeClaim", "workspace-again", **place)
        free = {"metadata": {"finalizers": None}}
        protection = threading.Timer(
            1.5, objects.patch, ("PersistentVolumeClaim", "workspace-again", free), place
        )
        boxes.create("again", "app:1")
        protection.start()
        assert box.wait(timeout=60, told=heard.append).phase == "Ready"
        protection.join()
        made = objects.get("PersistentVolumeClaim", "workspace-again", **place)
    assert "the former claim workspace-again is still being deleted" in {view.message for view in heard}
    assert made["metadata"]["uid"] != former["metadata"]["uid"]


def test_a_pool_that_is_not_there_is_said_within_seconds(boxes):
    box = boxes.sandbox("unpooled")

    def ask():
        box.create(template="nowhere")
        box.wait(timeout=60)

    with pytest.raises((WaitFailedError, UsageError, ObjectConflictError), match="nowhere"):
        ask()


def test_time_that_is_over_names_what_was_seen(boxes):
    box = boxes.create("slow", "app:1", workspace=False)
    box.wait(timeout=60)
    with pytest.raises(WaitTimeoutError, match="Ready"):
        box.wait("Failed", timeout=0.5)


def test_what_the_server_refuses_names_the_field(boxes):
    with pytest.raises(UsageError, match="image"):
        boxes.create("bad", "two words")
    with pytest.raises(UsageError, match="cpu"):
        boxes.create("bad", "app:1", cpu="much")
    with pytest.raises(UsageError, match="no name"):
        boxes.create("Bad_Name", "app:1")
