"""A pool whose sandboxes end at once makes new ones, later each time."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta

from tests.support.pools import TEMPLATE, Server, pool

from holdfast.controller.desk import Desk
from holdfast.controller.pauses import Pauses

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def later(seconds):
    return NOW + timedelta(seconds=seconds)


def test_the_first_time_is_at_once_and_each_one_after_it_later():
    pauses, at, found = Pauses(), NOW, []
    for _ in range(12):
        found.append(pauses.left("p", "t", at))
        at += timedelta(seconds=found[-1])
        pauses.replaced("p", "t", at)
    assert found[:4] == [0.0, 2.0, 4.0, 8.0]
    assert found[-1] == 300.0


def test_another_template_and_another_pool_begin_anew():
    pauses = Pauses()
    pauses.replaced("p", "t", NOW)
    assert pauses.left("p", "t", later(1)) == 1.0
    assert pauses.left("p", "newer", NOW) == pauses.left("q", "t", NOW) == 0.0


def test_what_has_not_happened_for_long_is_the_first_time_again():
    pauses = Pauses()
    for _ in range(9):
        pauses.replaced("p", "t", NOW)
    pauses.replaced("p", "t", later(1000))
    assert pauses.left("p", "t", later(1000)) == 2.0


class Ending(Server):
    """Whose pods end as soon as they are there."""

    async def create(self, manifest):
        made = await super().create(manifest)
        if made["kind"] == "Pod":
            made = self.put({**made, "status": {"phase": "Succeeded"}})
            self.tell(made)
        return made


def test_a_pool_of_what_ends_at_once_comes_to_rest():
    async def scenario():
        server = Ending(told_early=False)
        server.desk = Desk(server)
        running = asyncio.create_task(server.desk.run())
        for each in (TEMPLATE, pool(1)):
            server.tell(server.put(each))
        await asyncio.sleep(1.5)
        running.cancel()
        return server

    server = asyncio.run(scenario())
    assert server.wrote.count(("create", "Sandbox")) == 2
    assert server.wrote.count(("delete", "Sandbox")) == 1
