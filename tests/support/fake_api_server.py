"""A fake API server for warm pools and SandboxClaims, with versions, watch events and refusals."""

from __future__ import annotations

import asyncio
import copy

from holdfast.api import EXTENSIONS_API_VERSION
from holdfast.errors import ObjectConflictError
from holdfast.kube import OperationResult
from holdfast.sandbox import ActionTarget
from holdfast.sandbox.from_template import warm_sandbox as warm_sandbox_manifest


def extension_manifest(kind, name, **spec):
    metadata = {"name": name, "namespace": "ns", "uid": f"uid-{name}", "generation": 1}
    return {"apiVersion": EXTENSIONS_API_VERSION, "kind": kind, "metadata": metadata, "spec": spec}


TEMPLATE = extension_manifest(
    "SandboxTemplate", "t", podTemplate={"spec": {"containers": [{"name": "main"}]}}
)


def pool_manifest(replicas):
    return extension_manifest("SandboxWarmPool", "p", sandboxTemplateRef={"name": "t"}, replicas=replicas)


def claim_manifest(name):
    return extension_manifest("SandboxClaim", name, warmPoolRef={"name": "p"})


def warm_sandbox(name, owner):
    made = warm_sandbox_manifest(name, owner, TEMPLATE)
    made["metadata"] |= {"uid": f"uid-{name}", "creationTimestamp": "2026-01-01T00:00:00Z"}
    ready = {"type": "Ready", "status": "True", "reason": "DependenciesReady", "message": "Pod is Ready"}
    suspended = {"type": "Suspended", "status": "False", "reason": "NotSuspended"}
    made["status"] = {"conditions": [ready, suspended], "podIPs": ["10.0.0.9"]}
    return made


class FakeApiServer:
    """Stores objects with versions, applies merge patches, and sends a watch event for each change."""

    def __init__(self, *, notify_before_response):
        self.notify_before_response, self.controller = notify_before_response, None
        self.objects, self.version, self.requests = {}, 10, []
        self.before_patch = lambda target: None
        self.before_delete = lambda target: None
        self.refuse = lambda manifest: None

    def store(self, found):
        self.version += 1
        found = copy.deepcopy(found)
        found["metadata"]["resourceVersion"] = str(self.version)
        self.objects[found["kind"], found["metadata"]["name"]] = found
        return copy.deepcopy(found)

    def notify(self, found):
        self.controller.on_update(copy.deepcopy(found))

    async def _respond(self, found):
        if self.notify_before_response:
            self.notify(found)
        await asyncio.sleep(0.01)
        if not self.notify_before_response:
            asyncio.get_running_loop().call_later(0.01, self.notify, found)
        return found

    async def create(self, manifest):
        self.requests.append(("create", manifest["kind"]))
        self.refuse(manifest)
        if (manifest["kind"], manifest["metadata"]["name"]) in self.objects:
            raise ObjectConflictError("is there already")
        metadata = {"uid": f"uid-{len(self.requests)}", **manifest["metadata"]}
        return await self._respond(self.store({**manifest, "metadata": metadata}))

    async def patch(self, *, patch, subresource="patch", **target):
        return await self._apply_patch(subresource, ActionTarget(**target), patch)

    async def delete(self, *, propagation, resource_version, **identity):
        target = ActionTarget(**identity)
        self.requests.append(("delete", target.kind))
        self.before_delete(target)
        await asyncio.sleep(0.01)
        found = self.objects.get((target.kind, target.name))
        if found is None or found["metadata"]["uid"] != target.uid:
            return OperationResult("absent", {})
        if resource_version not in (None, found["metadata"]["resourceVersion"]):
            raise ObjectConflictError("another version")
        self.remove(found)
        return OperationResult("deleted", found)

    def remove(self, found):
        """Delete an object and send the watch event, with a new version."""
        del self.objects[found["kind"], found["metadata"]["name"]]
        self.version += 1
        metadata = {**found["metadata"], "resourceVersion": str(self.version)}
        self.controller.on_delete({**copy.deepcopy(found), "metadata": metadata})

    async def get(self, kind, name, *, namespace, api_version):
        self.requests.append(("read", kind))
        return copy.deepcopy(self.objects.get((kind, name)))

    async def _apply_patch(self, verb, target, patch):
        self.requests.append((verb, target.kind))
        self.before_patch(target)
        found = self.objects.get((target.kind, target.name))
        if found is None:
            return None
        wanted = patch.get("metadata", {}).get("resourceVersion")
        if wanted not in (None, found["metadata"]["resourceVersion"]):
            raise ObjectConflictError("another version")
        # With a uid, a patch of a subresource replaces its fields (see `AsyncObjects.patch`).
        fields = {key: value for key, value in patch.items() if key != "metadata"}
        patched = {**found, **fields} if verb == "status" else apply_merge_patch(found, patch)
        return await self._respond(self.store(patched))


def apply_merge_patch(old, patch):
    if not isinstance(patch, dict):
        return patch
    new = dict(old) if isinstance(old, dict) else {}
    for key, value in patch.items():
        new.pop(key, None) if value is None else new.update({key: apply_merge_patch(new.get(key), value)})
    return new
