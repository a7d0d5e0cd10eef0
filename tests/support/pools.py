"""Pools and claims before a stand-in for the API server: it keeps versions, tells watches, and refuses."""

from __future__ import annotations

import asyncio
import copy

from holdfast.errors import ObjectConflictError
from holdfast.sandbox.api import EXTENSIONS_API_VERSION
from holdfast.sandbox.blueprint import warm


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
        self.before_delete = lambda target: None
        self.refuse = lambda manifest: None

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
        self.refuse(manifest)
        if (manifest["kind"], manifest["metadata"]["name"]) in self.there:
            raise ObjectConflictError("is there already")
        metadata = {"uid": f"uid-{len(self.wrote)}", **manifest["metadata"]}
        return await self._answer(self.put({**manifest, "metadata": metadata}))

    async def patch(self, target, patch):
        return await self._patched("patch", target, patch)

    async def patch_status(self, target, patch):
        return await self._patched("status", target, patch)

    async def delete(self, target, propagation, version):
        self.wrote.append(("delete", target.kind))
        self.before_delete(target)
        await asyncio.sleep(0.01)
        found = self.there.get((target.kind, target.name))
        if found is None or found["metadata"]["uid"] != target.uid:
            return False
        if version not in (None, found["metadata"]["resourceVersion"]):
            raise ObjectConflictError("another version")
        self.remove(found)
        return True

    def remove(self, found):
        """Delete it, and tell of that as a watch does: in a version of its own."""
        del self.there[found["kind"], found["metadata"]["name"]]
        self.version += 1
        metadata = {**found["metadata"], "resourceVersion": str(self.version)}
        self.desk.gone({**copy.deepcopy(found), "metadata": metadata})

    async def read(self, kind, namespace, name):
        self.wrote.append(("read", kind))
        return copy.deepcopy(self.there.get((kind, name)))

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
