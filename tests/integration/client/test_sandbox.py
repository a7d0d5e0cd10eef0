"""The SDK against the real server on a real API server: what it makes, waits for, lists and takes away."""

import asyncio
import threading
from datetime import UTC, datetime, timedelta

import pytest
from tests.support.controller_process import terminated_pod_status

from holdfast import Sandbox
from holdfast.client import AsyncSandbox, watch
from holdfast.errors import (
    GatewayUnreachableError,
    ObjectConflictError,
    SandboxNotFoundError,
    UsageError,
    WaitFailedError,
    WaitTimeoutError,
)

pytestmark = pytest.mark.apiserver


def test_create_is_idempotent_and_waits_until_ready(sandboxes):
    box = sandboxes.sandbox("once")
    assert isinstance(box, Sandbox)
    first = box.create("app:1", env={"A": "b"}, workspace=False)
    assert box.is_new
    heard = []
    view = box.wait(timeout=60, on_change=heard.append)
    assert (view.phase, view.pod_ip) == ("Ready", "10.9.0.1")
    assert heard[-1] == view
    assert box.create("app:1", env={"A": "b"}, workspace=False).id == first.id
    assert not box.is_new
    with pytest.raises(ObjectConflictError, match="env"):
        box.create("app:1", env={"A": "c"}, workspace=False)


def test_suspend_resume_and_delete_emit_events(sandboxes):
    box = sandboxes.create("moves", "app:1", workspace=False)
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
    with pytest.raises(SandboxNotFoundError):
        box.delete()
    assert not box.delete(ignore_missing=True).deleted


def test_list_follows_pages_and_filters_by_selector(sandboxes, source):
    for number in range(5):
        sandboxes.create(f"page-{number}", "app:1", workspace=False, labels={"team": f"t{number % 2}"})

    async def names(**options):
        async with source.gateway.sandboxes() as found:
            return [view.name async for view in found.list(**options)]

    assert asyncio.run(names(page_size=2)) == [f"page-{number}" for number in range(5)]
    assert asyncio.run(names(selector="team=t1")) == ["page-1", "page-3"]
    assert asyncio.run(names(selector="team in (t0, t9),team!=t1", page_size=1)) == [
        "page-0",
        "page-2",
        "page-4",
    ]
    assert [view.name for view in sandboxes] == [f"page-{number}" for number in range(5)]


def test_concurrent_sandboxes_in_one_event_loop(source, sandboxes):
    async def one(found, number):
        box = await found.create(f"many-{number}", "app:1", workspace=False)
        assert isinstance(box, AsyncSandbox)
        return (await box.wait(timeout=60)).phase

    async def all_of_them():
        async with source.gateway.sandboxes() as found:
            return await asyncio.gather(*(one(found, number) for number in range(12)))

    assert set(asyncio.run(all_of_them())) == {"Ready"}


def test_temporary_sandbox_is_deleted_after_block(sandboxes):
    with sandboxes.temporary("app:1", prefix="mine", workspace=False, timeout=60) as box:
        assert box.name.startswith("mine-")
        assert box.get().phase == "Ready"
    box.wait_gone(timeout=60)


def test_wait_survives_server_restart(source, sandboxes):
    box = sandboxes.create("outlives", "app:1", workspace=False)
    box.wait(timeout=60)
    found = []
    first = threading.Event()

    def told(_view):
        first.set()

    waiting = threading.Thread(target=lambda: found.append(box.wait("Suspended", timeout=90, on_change=told)))
    waiting.start()
    assert first.wait(30)
    source.kill()
    try:
        with pytest.raises(GatewayUnreachableError, match="gateway source does not answer"):
            source.gateway.sandbox("outlives").get()
    finally:
        source.start()
    source.gateway.sandbox("outlives").suspend()
    waiting.join(90)
    assert [view.phase for view in found] == ["Suspended"]


def test_name_taken_by_foreign_pod_is_reported_within_seconds(sandboxes, source, kube_server):
    from holdfast.kube import Objects, api_client

    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "taken", "namespace": source.namespace},
        "spec": {"automountServiceAccountToken": False, "containers": [{"name": "c", "image": "x:1"}]},
    }
    with api_client(kube_server.kubeconfig) as api:
        Objects(api).create(pod)
    box = sandboxes.create("taken", "app:1", workspace=False)
    with pytest.raises(WaitFailedError, match="taken"):
        box.wait(timeout=60)


@pytest.mark.parametrize("failed_pods", ["Recreate", "Keep"])
def test_failed_pod_ends_wait_only_if_not_recreated(sandboxes, source, kube_server, failed_pods):
    from holdfast.kube import Objects, api_client

    name = f"fails-{failed_pods.lower()}"
    box = sandboxes.create(name, "app:1", workspace=False, failed_pods=failed_pods)
    box.wait(timeout=60)
    with api_client(kube_server.kubeconfig) as api:
        place = {"namespace": source.namespace, "subresource": "status"}
        # Times have whole seconds: with the current time, the backoff could end before the wait sees it.
        failed = terminated_pod_status("Failed", 7, datetime.now(UTC) + timedelta(seconds=2))
        Objects(api).patch("Pod", name, {"status": failed}, **place)
    box.wait("Failed", timeout=60)
    if failed_pods == "Keep":
        with pytest.raises(WaitFailedError, match="exited with code 7"):
            box.wait(timeout=60)
    else:
        assert box.wait(timeout=60).phase == "Ready"


def test_recreated_sandbox_waits_for_leftovers_of_previous_one(sandboxes, source, kube_server, monkeypatch):
    from holdfast.kube import Objects, api_client

    place = {"namespace": source.namespace}
    box = sandboxes.create("again", "app:1")
    box.wait(timeout=60)
    box.delete()
    box.wait_gone(timeout=60)
    monkeypatch.setattr(
        watch, "SUSPECT_GRACE_SECONDS", 0.2
    )  # what is doubtful ends the wait long before it goes
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
        sandboxes.create("again", "app:1")
        protection.start()
        assert box.wait(timeout=60, on_change=heard.append).phase == "Ready"
        protection.join()
        made = objects.get("PersistentVolumeClaim", "workspace-again", **place)
    assert "the previous PVC workspace-again is still being deleted" in {view.message for view in heard}
    assert made["metadata"]["uid"] != former["metadata"]["uid"]


def test_missing_pool_is_reported_within_seconds(sandboxes):
    box = sandboxes.sandbox("unpooled")

    def ask():
        box.create(template="nowhere")
        box.wait(timeout=60)

    with pytest.raises((WaitFailedError, UsageError, ObjectConflictError), match="nowhere"):
        ask()


def test_wait_timeout_reports_last_state(sandboxes):
    box = sandboxes.create("slow", "app:1", workspace=False)
    box.wait(timeout=60)
    with pytest.raises(WaitTimeoutError, match="Ready"):
        box.wait("Failed", timeout=0.5)


def test_server_rejection_names_field(sandboxes):
    with pytest.raises(UsageError, match="image"):
        sandboxes.create("bad", "two words")
    with pytest.raises(UsageError, match="cpu"):
        sandboxes.create("bad", "app:1", cpu="much")
    with pytest.raises(UsageError, match="not a valid sandbox name"):
        sandboxes.create("Bad_Name", "app:1")
