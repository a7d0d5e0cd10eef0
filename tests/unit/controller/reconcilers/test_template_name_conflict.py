"""Another owner has the name of a template's network policy: logged once, and reported by the sandboxes."""

from __future__ import annotations

import asyncio
import copy

from tests.support.fake_api_server import TEMPLATE, FakeApiServer
from tests.support.sandbox_objects import running_pod, sandbox
from tests.support.virtual_time import run_virtual, virtual_now

from holdfast.controller.controller import Controller
from holdfast.errors import ObjectConflictError
from holdfast.sandbox import find_condition
from holdfast.sandbox.network_policy import policy_manifest

ENFORCED = "holdfast.dev/NetworkPolicyEnforced"


def new_server():
    server = FakeApiServer(notify_before_response=False)
    server.controller = Controller(server, clock=virtual_now)
    return server


def run(server, scenario):
    async def with_controller():
        running = asyncio.create_task(server.controller.run())
        await scenario()
        running.cancel()

    run_virtual(with_controller())


def warnings(caplog):
    return [text for record in caplog.records if "cannot be created" in (text := record.getMessage())]


def test_recreated_template_is_logged_and_reported_again(caplog):
    server, reasons = new_server(), []
    box = sandbox()
    box["metadata"]["annotations"] = {"agents.x-k8s.io/sandbox-template-ref": "t"}
    server.controller.cache.put(server.store(running_pod(box)))
    metadata = {"name": "t-network-policy", "namespace": "ns", "uid": "theirs"}
    theirs = server.store({"kind": "NetworkPolicy", "metadata": metadata, "spec": {}})

    async def settle():
        await asyncio.sleep(3.0)
        reasons.append(find_condition(server.objects["Sandbox", "a"], ENFORCED).get("reason"))

    async def scenario():
        server.notify(theirs)
        server.notify(server.store(box))
        server.notify(server.store(TEMPLATE))
        await settle()
        server.remove(server.objects["SandboxTemplate", "t"])
        await settle()
        server.notify(server.store({**TEMPLATE, "metadata": {**TEMPLATE["metadata"], "uid": "second"}}))
        await settle()

    run(server, scenario)
    assert reasons == ["PolicyNameConflict", None, "PolicyNameConflict"]
    assert len(warnings(caplog)) == 2


def test_uid_conflict_of_patch_is_not_a_name_conflict(caplog):
    server = new_server()
    policy = copy.deepcopy(policy_manifest(TEMPLATE))
    policy["metadata"]["uid"], policy["spec"]["ingress"] = "ours", [{}]
    server.controller.cache.put(server.store(policy))

    def reject(target):
        if target.kind == "NetworkPolicy":
            raise ObjectConflictError(f"{target.kind}: the uid has changed")

    server.before_patch = reject

    async def scenario():
        server.notify(server.store(TEMPLATE))
        await asyncio.sleep(0.5)

    run(server, scenario)
    assert ("patch", "NetworkPolicy") in server.requests
    assert warnings(caplog) == []
