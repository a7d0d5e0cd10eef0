"""A sandbox reports a change of its pod that the response to a patch already contains."""

from __future__ import annotations

import asyncio
import copy

from tests.support.fake_api_server import FakeApiServer
from tests.support.sandbox_objects import running_pod, sandbox, workspace_claim_template
from tests.support.virtual_time import run_virtual, virtual_now

from holdfast.controller.controller import Controller
from holdfast.sandbox import has_condition, manifests


def test_change_during_pod_patch_is_reported():
    server = FakeApiServer(notify_before_response=False)
    server.controller = controller = Controller(server, clock=virtual_now)
    box = sandbox()
    controller.cache.put(server.store(running_pod(box)))
    changes = []

    def become_unready(target):
        if target.kind == "Pod":
            pod = copy.deepcopy(server.objects["Pod", "a"])
            pod["status"]["conditions"] = [{"type": "Ready", "status": "False"}]
            changes.append(server.store(pod))
            asyncio.get_running_loop().call_later(0.015, server.notify, changes[0])

    server.before_patch = become_unready

    async def scenario():
        running = asyncio.create_task(controller.run())
        server.notify(server.store(box))
        await asyncio.sleep(1.0)
        live = copy.deepcopy(server.objects["Sandbox", "a"])
        assert has_condition(live, "Ready")
        live["spec"]["podTemplate"]["metadata"] = {"labels": {"team": "red"}}
        server.notify(server.store(live))
        await asyncio.sleep(1.0)
        running.cancel()

    run_virtual(scenario())
    assert len(changes) == 1
    assert not has_condition(server.objects["Sandbox", "a"], "Ready")


def test_owned_pvc_that_is_not_watched_is_labelled_instead_of_created_again():
    server = FakeApiServer(notify_before_response=False)
    server.controller = controller = Controller(server, clock=virtual_now)
    box = sandbox(volumeClaimTemplates=[workspace_claim_template()])
    (pvc,) = manifests.pvc_manifests(box)
    pvc["metadata"] |= {"uid": "v-1", "labels": {}}
    pvc["status"] = {"phase": "Bound"}
    server.store(pvc)

    async def scenario():
        running = asyncio.create_task(controller.run())
        server.notify(server.store(box))
        await asyncio.sleep(60.0)
        running.cancel()

    run_virtual(scenario())
    assert server.requests.count(("create", "PersistentVolumeClaim")) == 1
    assert server.requests.count(("patch", "PersistentVolumeClaim")) == 1
    labels = server.objects["PersistentVolumeClaim", "workspace-a"]["metadata"]["labels"]
    assert labels == manifests.tracking_labels("a")
    assert ("Pod", "a") in server.objects


def test_service_name_has_the_domain_of_the_cluster():
    server = FakeApiServer(notify_before_response=False)
    server.controller = Controller(server, clock=virtual_now, cluster_domain="example.org")

    async def scenario():
        running = asyncio.create_task(server.controller.run())
        server.notify(server.store(sandbox(service=True)))
        await asyncio.sleep(3.0)
        running.cancel()

    run_virtual(scenario())
    assert server.objects["Sandbox", "a"]["status"]["serviceFQDN"] == "a.ns.svc.example.org"
