"""A sandbox is deleted last: its pod must not outlive it unseen."""

from __future__ import annotations

import asyncio

from tests.support.fake_api_server import FakeApiServer
from tests.support.sandbox_objects import running_pod, sandbox
from tests.support.virtual_time import run_virtual, virtual_now

from holdfast.controller.controller import Controller
from holdfast.errors import ApiRequestRejectedError


def objects_after_expiry(*, is_rejected):
    """The objects that remain of an expired sandbox with policy Delete, and the controller's requests."""

    async def scenario():
        server = FakeApiServer(notify_before_response=False)
        server.controller = Controller(server, clock=virtual_now)
        running = asyncio.create_task(server.controller.run())
        expired = sandbox(shutdownTime="2020-01-01T00:00:00Z", shutdownPolicy="Delete")

        def reject(target):
            if is_rejected and target.kind == "Pod":
                raise ApiRequestRejectedError("admission webhook denied the request")

        server.before_delete = reject
        server.notify(server.store(running_pod(expired)))
        server.notify(server.store(expired))
        await asyncio.sleep(2)
        running.cancel()
        return {kind for kind, _ in server.objects}, server.requests

    return run_virtual(scenario())


def test_sandbox_is_kept_while_its_pod_cannot_be_deleted():
    kinds, requests = objects_after_expiry(is_rejected=True)
    assert {"Sandbox", "Pod"} <= kinds
    assert ("delete", "Pod") in requests
    assert ("delete", "Sandbox") not in requests


def test_sandbox_is_deleted_after_its_pod():
    kinds, requests = objects_after_expiry(is_rejected=False)
    assert not kinds & {"Sandbox", "Pod"}
    deletions = [kind for verb, kind in requests if verb == "delete"]
    assert deletions.index("Pod") < deletions.index("Sandbox")
