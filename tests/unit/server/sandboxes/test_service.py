"""What a creation writes, with a cluster that has no objects yet."""

from __future__ import annotations

import asyncio

from holdfast.api import SandboxRequest, Workspace
from holdfast.kube import OperationResult
from holdfast.server.sandboxes import SandboxService
from holdfast.server.sandboxes.service import REQUEST_DIGESTS_ANNOTATION


class EmptyCluster:
    """A namespace without objects, which accepts one."""

    namespace = "ns"

    def __init__(self) -> None:
        self.objects = self
        self.created = None

    async def get(self, kind, name):
        assert kind in ("Sandbox", "SandboxClaim", "PersistentVolumeClaim")

    async def ensure(self, manifest):
        assert self.created is None
        self.created = {**manifest, "metadata": {**manifest["metadata"], "uid": "u"}}
        return OperationResult("created", self.created)


def created(size):
    """Return digests and requested size of a sandbox, on a server with this default size."""
    cluster = EmptyCluster()
    service = SandboxService(cluster, endpoint=None, workspace=Workspace(size=size))
    is_new, view = asyncio.run(service.create(SandboxRequest(name="a")))
    assert is_new
    return cluster.created["metadata"]["annotations"][REQUEST_DIGESTS_ANNOTATION], view.workspace.size


def test_changed_default_workspace_does_not_change_digests_of_request():
    (before, small), (after, large) = created("1Gi"), created("5Gi")
    assert (small, large) == ("1Gi", "5Gi")
    assert before == after
