"""What the server refuses or hides is said once, and asked for less and less often."""

from __future__ import annotations

import asyncio
import copy

import pytest
from tests.support.pools import TEMPLATE, Server, claim, pool
from tests.support.sandboxes import sandbox

from holdfast.controller.desk import Desk
from holdfast.errors import ClusterRefusedError, ObjectConflictError
from holdfast.sandbox.api import NAME_HASH


def played(act, *found, seconds=1.0, prepare=lambda server: None):
    async def scenario():
        server = Server(told_early=False)
        server.desk = Desk(server)
        prepare(server)
        running = asyncio.create_task(server.desk.run())
        for each in found:
            server.tell(server.put(each))
        await act(server)
        await asyncio.sleep(seconds)
        running.cancel()
        return server

    return asyncio.run(scenario())


async def nothing(server):
    """Only what was there at first."""


def over_quota(server):
    def refuse(manifest):
        raise ClusterRefusedError("exceeded quota: boxes, used: 0, limited: 0")

    server.refuse = refuse


@pytest.mark.parametrize(
    ("kind", "name", "found"),
    [("SandboxClaim", "c", (pool(0), claim("c"))), ("SandboxWarmPool", "p", (pool(1),))],
)
def test_what_the_server_refuses_is_told_with_its_words(kind, name, found):
    server = played(nothing, TEMPLATE, *found, prepare=over_quota)
    (row,) = server.there[kind, name]["status"]["conditions"]
    assert (row["type"], row["status"], row["reason"]) == ("Ready", "False", "ReconcilerError")
    assert "exceeded quota" in row["message"]
    assert server.wrote.count(("status", kind)) == 1


def test_what_was_refused_is_done_once_it_is_allowed():
    async def act(server):
        await asyncio.sleep(0.3)
        server.refuse = lambda manifest: None

    server = played(act, TEMPLATE, pool(1), claim("c"), prepare=over_quota, seconds=2.5)
    assert server.there["SandboxClaim", "c"]["status"]["sandbox"]["name"]
    assert "conditions" not in server.there["SandboxWarmPool", "p"]["status"]


def test_a_part_that_has_lost_its_label_is_seen_and_not_made_again_and_again():
    """A watch by label calls it gone, in the version in which it is there."""
    volume = {"metadata": {"name": "workspace"}, "spec": {"accessModes": ["ReadWriteOnce"]}}
    box = sandbox(volumeClaimTemplates=[volume])

    async def act(server):
        await asyncio.sleep(0.3)
        (key,) = [key for key in server.there if key[0] == "PersistentVolumeClaim"]
        labelled = server.there[key]
        bare = copy.deepcopy(labelled)
        del bare["metadata"]["labels"][NAME_HASH], bare["metadata"]["ownerReferences"]
        bare = server.put(bare)
        version = bare["metadata"]["resourceVersion"]
        server.wrote.clear()
        server.desk.gone({**labelled, "metadata": {**labelled["metadata"], "resourceVersion": version}})

    server = played(act, box)
    assert server.wrote.count(("create", "PersistentVolumeClaim")) == 1
    status = server.there["Sandbox", box["metadata"]["name"]]["status"]
    assert any("workspace" in row["message"] for row in status["conditions"])


def test_a_name_that_is_taken_by_what_cannot_be_seen_is_tried_less_and_less_often():
    def hide(server):
        def refuse(manifest):
            raise ObjectConflictError("is there already")

        server.refuse = refuse

    server = played(nothing, TEMPLATE, pool(0), claim("c"), prepare=hide, seconds=1.5)
    assert 3 <= server.wrote.count(("create", "Sandbox")) <= 6
