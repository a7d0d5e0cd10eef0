"""A warm pool follows an edit of its spec that the response to its status patch already contains."""

from __future__ import annotations

import asyncio
import copy

from tests.support.fake_api_server import TEMPLATE, FakeApiServer, pool_manifest, warm_sandbox
from tests.support.sandbox_objects import running_pod
from tests.support.virtual_time import run_virtual, virtual_now

from holdfast.controller.controller import Controller


def test_edit_during_status_patch_is_followed():
    server = FakeApiServer(notify_before_response=False)
    server.controller = controller = Controller(server, clock=virtual_now)
    pool = pool_manifest(1)
    box = warm_sandbox("p-0", pool)
    for found in (TEMPLATE, box, running_pod(box)):
        controller.cache.put(server.store(found))
    edits = []

    def edit(target):
        if target.kind == "SandboxWarmPool" and not edits:
            edited = copy.deepcopy(server.objects["SandboxWarmPool", "p"])
            edited["spec"]["replicas"] = 3
            edits.append(server.store(edited))
            asyncio.get_running_loop().call_later(0.015, server.notify, edits[0])

    server.before_patch = edit

    async def scenario():
        running = asyncio.create_task(controller.run())
        server.notify(server.store(pool))
        await asyncio.sleep(1.0)
        running.cancel()

    run_virtual(scenario())
    assert edits
    assert len([kind for kind, _ in server.objects if kind == "Sandbox"]) == 3
