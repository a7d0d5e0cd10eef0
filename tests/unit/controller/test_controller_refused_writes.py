"""Rejected writes and hidden objects are reported once, and retried with backoff."""

from __future__ import annotations

import asyncio
import copy

import pytest
from tests.support.fake_api_server import TEMPLATE, FakeApiServer, claim_manifest, pool_manifest
from tests.support.sandbox_objects import sandbox
from tests.support.virtual_time import run_virtual, virtual_now

from holdfast.api import NAME_HASH_LABEL
from holdfast.controller.controller import Controller
from holdfast.errors import ApiRequestRejectedError, ObjectConflictError


def run_scenario(act, *found, seconds=1.0, prepare=lambda server: None):
    async def scenario():
        server = FakeApiServer(notify_before_response=False)
        server.controller = Controller(server, clock=virtual_now)
        prepare(server)
        running = asyncio.create_task(server.controller.run())
        for each in found:
            server.notify(server.store(each))
        await act(server)
        await asyncio.sleep(seconds)
        running.cancel()
        return server

    return run_virtual(scenario())


async def nothing(server):
    """Do nothing after the initial events."""


def over_quota(server):
    def refuse(manifest):
        raise ApiRequestRejectedError("exceeded quota: boxes, used: 0, limited: 0")

    server.refuse = refuse


@pytest.mark.parametrize(
    ("kind", "name", "found"),
    [
        ("SandboxClaim", "c", (pool_manifest(0), claim_manifest("c"))),
        ("SandboxWarmPool", "p", (pool_manifest(1),)),
    ],
)
def test_server_rejection_is_reported_in_status(kind, name, found):
    server = run_scenario(nothing, TEMPLATE, *found, prepare=over_quota)
    (row,) = server.objects[kind, name]["status"]["conditions"]
    assert (row["type"], row["status"], row["reason"]) == ("Ready", "False", "ReconcilerError")
    assert "exceeded quota" in row["message"]
    assert server.requests.count(("status", kind)) == 1


def test_rejected_write_is_retried_and_succeeds_once_allowed():
    async def act(server):
        await asyncio.sleep(0.3)
        server.refuse = lambda manifest: None

    server = run_scenario(
        act, TEMPLATE, pool_manifest(1), claim_manifest("c"), prepare=over_quota, seconds=2.5
    )
    assert server.objects["SandboxClaim", "c"]["status"]["sandbox"]["name"]
    assert "conditions" not in server.objects["SandboxWarmPool", "p"]["status"]


def test_expiry_is_reported_in_time_while_writes_are_rejected():
    """The next attempt after a rejection would come later than the expiry."""
    claim = claim_manifest("c")
    claim["spec"]["lifecycle"] = {"shutdownTime": "2026-01-01T12:01:40Z"}
    server = run_scenario(nothing, TEMPLATE, pool_manifest(0), claim, prepare=over_quota, seconds=101.0)
    (row,) = server.objects["SandboxClaim", "c"]["status"]["conditions"]
    assert (row["reason"], row["lastTransitionTime"]) == ("ClaimExpired", "2026-01-01T12:00:00Z")


def test_child_without_label_is_found_and_not_recreated():
    """A watch by label reports it as deleted, in the version in which it continues to exist."""
    volume = {"metadata": {"name": "workspace"}, "spec": {"accessModes": ["ReadWriteOnce"]}}
    box = sandbox(volumeClaimTemplates=[volume])

    async def act(server):
        await asyncio.sleep(0.3)
        (key,) = [key for key in server.objects if key[0] == "PersistentVolumeClaim"]
        labelled = server.objects[key]
        bare = copy.deepcopy(labelled)
        del bare["metadata"]["labels"][NAME_HASH_LABEL], bare["metadata"]["ownerReferences"]
        bare = server.store(bare)
        version = bare["metadata"]["resourceVersion"]
        server.requests.clear()
        metadata = {**labelled["metadata"], "resourceVersion": version}
        server.controller.on_delete({**labelled, "metadata": metadata})

    server = run_scenario(act, box)
    assert server.requests.count(("create", "PersistentVolumeClaim")) == 1
    status = server.objects["Sandbox", box["metadata"]["name"]]["status"]
    assert any("workspace" in row["message"] for row in status["conditions"])


def test_name_taken_by_invisible_object_is_retried_with_backoff():
    def hide(server):
        def refuse(manifest):
            raise ObjectConflictError("is there already")

        server.refuse = refuse

    server = run_scenario(nothing, TEMPLATE, pool_manifest(0), claim_manifest("c"), prepare=hide, seconds=1.5)
    assert 3 <= server.requests.count(("create", "Sandbox")) <= 6
    (row,) = server.objects["SandboxClaim", "c"]["status"]["conditions"]
    message = "Sandbox already created; waiting for cache to converge"
    assert (row["status"], row["reason"], row["message"]) == ("False", "SandboxCreatePending", message)
