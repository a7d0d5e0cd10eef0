"""A pool lets go of its sandboxes while claims take them: nothing that a claim has is ever deleted."""

from __future__ import annotations

import asyncio
import copy

import pytest
from tests.support.pools import TEMPLATE, Server, claim, pool, waiting
from tests.support.sandboxes import living_pod

from holdfast.controller.desk import Desk
from holdfast.sandbox.ownership import controller_of

REPLICAS = 8


class Scene:
    """A controller before a full pool; `deleted` has what was taken away, as it was then."""

    def __init__(self, **spec):
        self.server = Server(told_early=False)
        self.server.desk = self.desk = Desk(self.server, workers=16)
        self.pool = pool(REPLICAS)
        self.pool["spec"] |= spec
        boxes = [waiting(f"p-{n}", self.pool) for n in range(REPLICAS)]
        pods = [living_pod(box, uid=f"pod-{n}") for n, box in enumerate(boxes)]
        for found in (TEMPLATE, self.pool, *boxes, *pods):
            self.desk.cache.put(self.server.put(found))
        self.deleted = []
        self.server.remove, removed = self._remove, self.server.remove
        self._really = removed

    def _remove(self, found):
        self.deleted.append(copy.deepcopy(found))
        self._really(found)

    def shrink(self):
        self.server.tell(self.server.put({**self.pool, "spec": {**self.pool["spec"], "replicas": 0}}))

    def edit(self):
        newer = copy.deepcopy(TEMPLATE)
        newer["spec"]["podTemplate"]["spec"]["containers"][0]["image"] = "app:2"
        self.server.tell(self.server.put(newer))

    def ask(self, name):
        self.server.tell(self.server.put(claim(name)))

    def bound(self, name):
        """The claim's sandbox as the server has it, or None."""
        status = self.server.there["SandboxClaim", name].get("status") or {}
        return self.server.there.get(("Sandbox", (status.get("sandbox") or {}).get("name")))

    def play(self, act):
        async def scenario():
            running = asyncio.create_task(self.desk.run())
            await act()
            await asyncio.sleep(0.8)
            running.cancel()

        asyncio.run(scenario())
        return self


def owners(found):
    return {controller_of(each)["kind"] for each in found if each["kind"] == "Sandbox"}


@pytest.mark.parametrize("change", ["shrink", "edit"])
@pytest.mark.parametrize("first", ["claims", "change"])
def test_claims_that_come_while_a_pool_lets_go_keep_what_they_get(change, first):
    scene = Scene(updateStrategy={"type": "Recreate"})

    async def act():
        if first == "change":
            getattr(scene, change)()
        for number in range(4):
            await asyncio.sleep(0.004)
            scene.ask(f"c{number}")
        if first == "claims":
            getattr(scene, change)()

    scene.play(act)
    assert owners(scene.deleted) == {"SandboxWarmPool"}
    for number in range(4):
        own = scene.bound(f"c{number}")
        assert own is not None
        assert controller_of(own)["name"] == f"c{number}"


def test_what_another_has_taken_since_it_was_seen_is_not_deleted():
    """Whoever did it, and whatever this controller knows of it: the server refuses the delete."""
    scene = Scene()
    taken = []

    def steal(target):
        if not taken:
            found = scene.server.there["Sandbox", target.name]
            [owner] = found["metadata"]["ownerReferences"]
            other = {**owner, "kind": "SandboxClaim", "name": "elsewhere", "uid": "u-else"}
            taken.append(target.name)
            scene.server.put({**found, "metadata": {**found["metadata"], "ownerReferences": [other]}})

    scene.server.before_delete = steal

    async def act():
        scene.shrink()
        await asyncio.sleep(0.2)
        scene.server.tell(scene.server.there["Sandbox", taken[0]])

    scene.play(act)
    left = [each for each in scene.server.there.values() if each["kind"] == "Sandbox"]
    assert [each["metadata"]["name"] for each in left] == taken
    assert owners(scene.deleted) == {"SandboxWarmPool"}


def test_a_claim_whose_sandbox_is_gone_gets_another_one():
    scene = Scene()

    async def act():
        scene.ask("c")
        await asyncio.sleep(0.3)
        lost.append(scene.bound("c")["metadata"]["name"])
        scene.server.remove(scene.bound("c"))

    lost = []
    scene.play(act)
    assert scene.bound("c") is not None
    assert scene.bound("c")["metadata"]["name"] not in lost


def test_a_claim_whose_sandbox_was_not_told_of_asks_for_it_and_keeps_it():
    """A watch that lags behind must not cost the user a workspace."""
    scene = Scene()

    async def act():
        scene.ask("c")
        await asyncio.sleep(0.3)
        kept.append(scene.bound("c")["metadata"]["name"])
        scene.desk.cache.forget(scene.bound("c"))
        scene.server.tell(scene.server.put(scene.server.there["SandboxClaim", "c"]))

    kept = []
    scene.play(act)
    assert scene.bound("c")["metadata"]["name"] == kept[0]
    assert ("read", "Sandbox") in scene.server.wrote
