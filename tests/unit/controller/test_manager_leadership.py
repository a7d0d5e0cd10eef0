"""The controller works only while its process holds the Lease."""

from __future__ import annotations

import asyncio

import pytest
from tests.support.fake_leases import FakeLeases
from tests.support.sandbox_objects import sandbox
from tests.support.virtual_time import run_virtual

from holdfast.controller.leader_election import RENEW_INTERVAL
from holdfast.controller.manager import ControllerOptions, Manager
from holdfast.errors import TemporaryError
from holdfast.kube.objects import ObjectList


class LeaseLostDuringList(FakeLeases):
    """An API server on which another process takes the Lease during the initial list."""

    async def wait(self, kind, name, until, *, deadline):
        assert kind == "CustomResourceDefinition"

    async def list(self, kind, **_):
        if kind == "Node":
            self.store({"holderIdentity": "another"})
            await asyncio.sleep(2 * RENEW_INTERVAL)
        return ObjectList([sandbox()] if kind == "Sandbox" else [], "50")


def test_lease_lost_during_initial_list_starts_no_work(caplog):
    caplog.set_level("INFO")

    async def scenario():
        server = LeaseLostDuringList()
        options = ControllerOptions(host="127.0.0.1", port=0, identity="me")
        with pytest.raises(TemporaryError, match="the lease was lost"):
            await Manager(server, options, asyncio.Event()).run()
        return server.holder

    assert run_virtual(scenario()) == "another"
    assert not [record for record in caplog.records if record.getMessage().startswith("leading")]
