"""A warm pool scales down while SandboxClaims adopt sandboxes: an adopted sandbox is never deleted."""

from __future__ import annotations

import asyncio
import copy

import pytest
from tests.support.fake_api_server import TEMPLATE, FakeApiServer, claim_manifest, pool_manifest, warm_sandbox
from tests.support.sandbox_objects import running_pod
from tests.support.virtual_time import run_virtual, virtual_now

from holdfast.controller.controller import Controller
from holdfast.sandbox import controller_of

REPLICAS = 8


class Scene:
    """A controller with a full pool; `deleted` has the deleted objects."""

    def __init__(self, **spec):
        self.server = FakeApiServer(notify_before_response=False)
        self.server.controller = self.controller = Controller(self.server, workers=16, clock=virtual_now)
        self.pool = pool_manifest(REPLICAS)
        self.pool["spec"] |= spec
        boxes = [warm_sandbox(f"p-{n}", self.pool) for n in range(REPLICAS)]
        pods = [running_pod(box, uid=f"pod-{n}") for n, box in enumerate(boxes)]
        for found in (TEMPLATE, self.pool, *boxes, *pods):
            self.controller.cache.put(self.server.store(found))
        self.deleted = []
        self.server.remove, removed = self._remove, self.server.remove
        self._really = removed

    def _remove(self, found):
        self.deleted.append(copy.deepcopy(found))
        self._really(found)

    def shrink(self):
        self.server.notify(self.server.store({**self.pool, "spec": {**self.pool["spec"], "replicas": 0}}))

    def edit(self):
        newer = copy.deepcopy(TEMPLATE)
        newer["spec"]["podTemplate"]["spec"]["containers"][0]["image"] = "app:2"
        self.server.notify(self.server.store(newer))

    def ask(self, name):
        self.server.notify(self.server.store(claim_manifest(name)))

    def bound(self, name):
        """Return the sandbox of a SandboxClaim, or None."""
        status = self.server.objects["SandboxClaim", name].get("status") or {}
        return self.server.objects.get(("Sandbox", (status.get("sandbox") or {}).get("name")))

    def play(self, act):
        async def scenario():
            running = asyncio.create_task(self.controller.run())
            await act()
            await asyncio.sleep(0.8)
            running.cancel()

        run_virtual(scenario())
        return self


def owners(found):
    return {controller_of(each)["kind"] for each in found if each["kind"] == "Sandbox"}


@pytest.mark.parametrize("change", ["shrink", "edit"])
@pytest.mark.parametrize("first", ["claims", "change"])
def test_claims_keep_adopted_sandboxes_while_pool_scales_down(change, first):
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


def test_sandbox_adopted_after_list_is_not_deleted():
    """The API server rejects a delete with an outdated version."""
    scene = Scene()
    taken = []

    def steal(target):
        if not taken:
            found = scene.server.objects["Sandbox", target.name]
            [owner] = found["metadata"]["ownerReferences"]
            other = {**owner, "kind": "SandboxClaim", "name": "elsewhere", "uid": "u-else"}
            taken.append(target.name)
            scene.server.store({**found, "metadata": {**found["metadata"], "ownerReferences": [other]}})

    scene.server.before_delete = steal

    async def act():
        scene.shrink()
        await asyncio.sleep(0.2)
        scene.server.notify(scene.server.objects["Sandbox", taken[0]])

    scene.play(act)
    left = [each for each in scene.server.objects.values() if each["kind"] == "Sandbox"]
    assert [each["metadata"]["name"] for each in left] == taken
    assert owners(scene.deleted) == {"SandboxWarmPool"}


def test_claim_gets_new_sandbox_after_deletion():
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


def test_claim_reads_unseen_sandbox_and_keeps_it():
    """A delayed watch must not cost the user a workspace."""
    scene = Scene()

    async def act():
        scene.ask("c")
        await asyncio.sleep(0.3)
        kept.append(scene.bound("c")["metadata"]["name"])
        scene.controller.cache.evict(scene.bound("c"))
        scene.server.notify(scene.server.store(scene.server.objects["SandboxClaim", "c"]))

    kept = []
    scene.play(act)
    assert scene.bound("c")["metadata"]["name"] == kept[0]
    assert ("read", "Sandbox") in scene.server.requests


def test_member_that_changes_all_the_time_does_not_keep_the_others():
    scene = Scene()

    def change(target):
        if target.name == "p-7":
            scene.server.store(scene.server.objects["Sandbox", "p-7"])

    scene.server.before_delete = change

    async def act():
        scene.shrink()

    scene.play(act)
    left = [name for kind, name in scene.server.objects if kind == "Sandbox"]
    assert left == ["p-7"]
