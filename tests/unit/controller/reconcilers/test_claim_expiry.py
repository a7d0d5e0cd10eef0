"""An expired SandboxClaim is deleted once, however late the watch reports the deletion."""

from __future__ import annotations

import asyncio

from tests.support.fake_api_server import FakeApiServer, claim_manifest
from tests.support.virtual_time import run_virtual, virtual_now

from holdfast.controller.controller import Controller


class LateDeletions(FakeApiServer):
    """The watch reports each deletion after two seconds."""

    def __init__(self):
        super().__init__(notify_before_response=False)
        self.events = []

    async def create(self, manifest):
        if manifest["kind"] == "Event":
            self.events.append(manifest)
            return manifest
        return await super().create(manifest)

    def remove(self, found):
        asyncio.get_running_loop().call_later(2.0, super().remove, found)


def test_expired_claim_is_deleted_once():
    server = LateDeletions()
    server.controller = controller = Controller(server, clock=virtual_now)
    claim = claim_manifest("c")
    claim["spec"]["lifecycle"] = {"shutdownTime": "2020-01-01T00:00:00Z", "shutdownPolicy": "Delete"}

    async def scenario():
        running = asyncio.create_task(controller.run())
        server.notify(server.store(claim))
        await asyncio.sleep(5.0)
        running.cancel()

    run_virtual(scenario())
    assert ("SandboxClaim", "c") not in server.objects
    assert server.requests.count(("delete", "SandboxClaim")) == 1
    assert [event["action"] for event in server.events] == ["Claim Expired", "Deleting"]
