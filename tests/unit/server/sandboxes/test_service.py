"""What a creation writes, with a cluster that has no objects yet."""

from __future__ import annotations

import asyncio

import pytest
from tests.support.sandbox_objects import sandbox

from holdfast.api import SandboxRequest, Workspace
from holdfast.errors import TemporaryError
from holdfast.kube import OperationResult
from holdfast.server.sandboxes import SandboxService
from holdfast.server.sandboxes.request_comparison import REQUEST_DIGESTS_ANNOTATION


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


class ClusterWithoutEvents:
    """A namespace with one sandbox, whose events cannot be listed."""

    namespace = "ns"

    def __init__(self, error):
        self._error = error

    async def get(self, kind, _name):
        return sandbox() if kind == "Sandbox" else None

    async def list_events(self, _name, _limit):
        raise self._error


def get_with_events(error):
    service = SandboxService(ClusterWithoutEvents(error), endpoint=None, workspace=Workspace())
    return asyncio.run(service.get_with_events("a"))


def test_sandbox_is_shown_without_events_that_cannot_be_listed():
    view = get_with_events(TemporaryError("events: the request timed out"))
    assert (view.name, view.events) == (sandbox()["metadata"]["name"], [])


def test_defect_while_events_are_listed_is_raised():
    with pytest.raises(ZeroDivisionError):
        get_with_events(ZeroDivisionError())
