"""A pool whose sandboxes end at once makes new ones, later each time; a new controller goes on with that."""

from __future__ import annotations

import asyncio

from tests.support.pools import TEMPLATE, Server, pool

from holdfast.controller.desk import Desk


class Ending(Server):
    """Whose pods end as soon as they are there."""

    async def create(self, manifest):
        made = await super().create(manifest)
        if made["kind"] == "Pod":
            made = self.put({**made, "status": {"phase": "Succeeded"}})
            self.tell(made)
        return made


async def controlled(server, seconds):
    """A controller that knows nothing but what is there, for so long; then it is gone."""
    server.desk = Desk(server)
    running = asyncio.create_task(server.desk.run())
    for each in list(server.there.values()):
        server.tell(each)
    await asyncio.sleep(seconds)
    running.cancel()


def made_of(server):
    return server.wrote.count(("create", "Sandbox"))


def test_a_pool_of_what_ends_at_once_comes_to_rest():
    server = Ending(told_early=False)
    for each in (TEMPLATE, pool(1)):
        server.put(each)
    asyncio.run(controlled(server, 1.5))
    assert made_of(server) == 2
    assert server.wrote.count(("delete", "Sandbox")) == 1


def test_a_controller_that_crashes_again_and_again_makes_no_more_of_them():
    server = Ending(told_early=False)
    for each in (TEMPLATE, pool(2)):
        server.put(each)
    for _ in range(5):
        asyncio.run(controlled(server, 0.3))
    assert made_of(server) == 4
