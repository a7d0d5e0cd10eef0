"""A claim takes a waiting sandbox in two writes, whoever tells of them first; what others do comes after."""

from __future__ import annotations

import asyncio
import copy

import pytest
from tests.support.sandboxes import living_pod

from holdfast.controller.desk import Desk
from holdfast.errors import ObjectConflictError
from holdfast.sandbox.api import EXTENSIONS_API_VERSION
from holdfast.sandbox.blueprint import warm

EARLY, LATE = True, False
"""Whether the watch tells of a write before the write's own answer comes."""


def extension(kind, name, **spec):
    metadata = {"name": name, "namespace": "ns", "uid": f"uid-{name}", "generation": 1}
    return {"apiVersion": EXTENSIONS_API_VERSION, "kind": kind, "metadata": metadata, "spec": spec}


TEMPLATE = extension("SandboxTemplate", "t", podTemplate={"spec": {"containers": [{"name": "main"}]}})


def pool(replicas):
    return extension("SandboxWarmPool", "p", sandboxTemplateRef={"name": "t"}, replicas=replicas)


def claim(name):
    return extension("SandboxClaim", name, warmPoolRef={"name": "p"})


def waiting(name, owner):
    made = warm(name, owner, TEMPLATE)
    made["metadata"] |= {"uid": f"uid-{name}", "creationTimestamp": "2026-01-01T00:00:00Z"}
    ready = {"type": "Ready", "status": "True", "reason": "DependenciesReady", "message": "the pod is ready"}
    suspended = {"type": "Suspended", "status": "False", "reason": "NotSuspended"}
    made["status"] = {"conditions": [ready, suspended], "podIPs": ["10.0.0.9"]}
    return made


class Server:
    """Keeps objects with their versions, takes merge patches, and tells a watch of all that changes."""

    def __init__(self, *, told_early):
        self.told_early, self.desk = told_early, None
        self.there, self.version, self.wrote = {}, 10, []
        self.before_patch = lambda target: None

    def put(self, found):
        self.version += 1
        found = copy.deepcopy(found)
        found["metadata"]["resourceVersion"] = str(self.version)
        self.there[found["kind"], found["metadata"]["name"]] = found
        return copy.deepcopy(found)

    def tell(self, found):
        self.desk.changed(copy.deepcopy(found))

    async def _answer(self, found):
        if self.told_early:
            self.tell(found)
        await asyncio.sleep(0.01)
        if not self.told_early:
            asyncio.get_running_loop().call_later(0.01, self.tell, found)
        return found

    async def create(self, manifest):
        self.wrote.append(("create", manifest["kind"]))
        metadata = {"uid": f"uid-{len(self.wrote)}", **manifest["metadata"]}
        return await self._answer(self.put({**manifest, "metadata": metadata}))

    async def patch(self, target, patch):
        return await self._patched("patch", target, patch)

    async def patch_status(self, target, patch):
        return await self._patched("status", target, patch)

    async def delete(self, target, propagation):
        self.wrote.append(("delete", target.kind))
        return True

    async def read(self, kind, namespace, name):
        return None

    async def _patched(self, verb, target, patch):
        self.wrote.append((verb, target.kind))
        self.before_patch(target)
        found = self.there.get((target.kind, target.name))
        if found is None:
            return None
        wanted = patch.get("metadata", {}).get("resourceVersion")
        if wanted not in (None, found["metadata"]["resourceVersion"]):
            raise ObjectConflictError("another version")
        return await self._answer(self.put(merged(found, patch)))


def merged(old, patch):
    if not isinstance(patch, dict):
        return patch
    new = dict(old) if isinstance(old, dict) else {}
    for key, value in patch.items():
        new.pop(key, None) if value is None else new.update({key: merged(new.get(key), value)})
    return new


def claimed(*claims, sandboxes=2, told_early=LATE, before_patch=None):
    """What is there and what was written when these claims come to a pool that is full."""

    async def scenario():
        server = Server(told_early=told_early)
        server.desk = desk = Desk(server)
        full = pool(sandboxes)
        boxes = [waiting(f"p-{n}", full) for n in range(sandboxes)]
        pods = [living_pod(box, uid=f"pod-{n}") for n, box in enumerate(boxes)]
        for found in (TEMPLATE, full, *boxes, *pods):
            desk.cache.put(server.put(found))
        if before_patch is not None:
            server.before_patch = lambda target: before_patch(server, target)
        running = asyncio.create_task(desk.run())
        for each in claims:
            server.tell(server.put(each))
        await asyncio.sleep(0.3)
        running.cancel()
        return server

    return asyncio.run(scenario())


def ready(server, name):
    found = server.there["SandboxClaim", name]
    [row] = found["status"]["conditions"]
    return row["status"], found["status"]["sandbox"]["name"]


def note(server, name):
    return server.there["SandboxClaim", name]["metadata"]["annotations"]


@pytest.mark.parametrize("told_early", [EARLY, LATE])
def test_two_writes_and_the_claim_is_ready(told_early):
    server = claimed(claim("c"), told_early=told_early)
    assert server.wrote[:2] == [("patch", "Sandbox"), ("status", "SandboxClaim")]
    assert ready(server, "c") == ("True", "p-0")
    assert server.wrote.count(("status", "SandboxClaim")) == 1
    assert "p-0" in note(server, "c").values()


@pytest.mark.parametrize("told_early", [EARLY, LATE])
def test_the_pool_makes_another_one_after_the_claim_was_told(told_early):
    wrote = claimed(claim("c"), told_early=told_early).wrote
    assert wrote.count(("create", "Sandbox")) == 1
    assert wrote.index(("create", "Sandbox")) > wrote.index(("status", "SandboxClaim"))


@pytest.mark.parametrize("told_early", [EARLY, LATE])
def test_a_pool_that_was_filled_is_told_of_once(told_early):
    """Its new sandbox is known when it was made, and no earlier number is written."""
    server = claimed(claim("c"), told_early=told_early)
    assert server.wrote.count(("status", "SandboxWarmPool")) == 1
    assert server.there["SandboxWarmPool", "p"]["status"]["replicas"] == 2


def test_claims_at_the_same_time_take_different_sandboxes_and_none_in_vain():
    server = claimed(claim("c"), claim("d"), claim("e"), sandboxes=3)
    assert {ready(server, name)[1] for name in "cde"} == {"p-0", "p-1", "p-2"}
    assert server.wrote.count(("patch", "Sandbox")) == 3
    assert server.wrote.count(("status", "SandboxClaim")) == 3


def test_a_sandbox_that_goes_while_it_is_taken_is_followed_by_the_next():
    def lost(server, target):
        if target.name == "p-0":
            server.there.pop(("Sandbox", "p-0"), None)

    server = claimed(claim("c"), before_patch=lost)
    assert ready(server, "c") == ("True", "p-1")
    assert "p-1" in note(server, "c").values()


def test_a_sandbox_that_changes_while_it_is_taken_can_be_taken_again():
    """Nothing stays reserved after a write that failed."""
    changed = []

    def touched(server, target):
        if target.kind == "Sandbox" and not changed:
            changed.append(target.name)
            server.tell(server.put(server.there["Sandbox", target.name]))

    server = claimed(claim("c"), sandboxes=1, before_patch=touched)
    assert changed == ["p-0"]
    assert ready(server, "c") == ("True", "p-0")
