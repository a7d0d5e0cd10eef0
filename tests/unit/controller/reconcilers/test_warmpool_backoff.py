"""A warm pool with crashing sandboxes backs off, also across restarts of the controller."""

from __future__ import annotations

import asyncio

from tests.support.fake_api_server import TEMPLATE, FakeApiServer, pool_manifest
from tests.support.virtual_time import run_virtual, virtual_now

from holdfast.controller.controller import Controller


class Ending(FakeApiServer):
    """An API server whose pods succeed immediately."""

    async def create(self, manifest):
        made = await super().create(manifest)
        if made["kind"] == "Pod":
            made = self.store({**made, "status": {"phase": "Succeeded"}})
            self.notify(made)
        return made


async def run_controller_for(server, seconds):
    """Run a new controller over the stored objects for some seconds."""
    server.controller = Controller(server, clock=virtual_now)
    running = asyncio.create_task(server.controller.run())
    for each in list(server.objects.values()):
        server.notify(each)
    await asyncio.sleep(seconds)
    running.cancel()


def created_sandboxes(server):
    return server.requests.count(("create", "Sandbox"))


def test_pool_of_crashing_sandboxes_backs_off():
    server = Ending(notify_before_response=False)
    for each in (TEMPLATE, pool_manifest(1)):
        server.store(each)
    run_virtual(run_controller_for(server, 1.5))
    assert created_sandboxes(server) == 2
    assert server.requests.count(("delete", "Sandbox")) == 1


def test_restarted_controller_keeps_backoff():
    server = Ending(notify_before_response=False)
    for each in (TEMPLATE, pool_manifest(2)):
        server.store(each)

    async def restart_repeatedly():
        for _ in range(5):
            await run_controller_for(server, 0.3)

    run_virtual(restart_repeatedly())
    assert created_sandboxes(server) == 4
