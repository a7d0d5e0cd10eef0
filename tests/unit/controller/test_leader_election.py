"""A Lease is taken only when it has expired, and released only by its holder."""

from __future__ import annotations

import asyncio

import pytest
from tests.support.fake_leases import FakeLeases
from tests.support.virtual_time import run_virtual

from holdfast.controller.leader_election import LEASE_DURATION, LeaderElector


def elector(leases):
    return LeaderElector(leases, "ns", "lease", "me")


def test_release_clears_own_lease():
    async def scenario():
        leases = FakeLeases()
        leader = elector(leases)
        await leader.acquire()
        assert leases.holder == "me"
        await leader.release()
        return leases.holder

    assert run_virtual(scenario()) == ""


def test_release_keeps_lease_of_another_holder():
    async def scenario():
        leases = FakeLeases()
        leader = elector(leases)
        await leader.acquire()
        leases.store({"holderIdentity": "another"})
        await leader.release()
        return leases.holder

    assert run_virtual(scenario()) == "another"


@pytest.mark.parametrize(
    ("renewed_after", "taken_after"), [(None, LEASE_DURATION), (10.0, 2 * LEASE_DURATION)]
)
def test_failed_wait_does_not_take_lease_before_expiry(renewed_after, taken_after):
    async def scenario():
        leases = FakeLeases(holder="another")
        if renewed_after is not None:
            asyncio.get_running_loop().call_later(renewed_after, leases.store, {})
        await elector(leases).acquire()
        assert leases.holder == "me"
        return asyncio.get_running_loop().time()

    assert run_virtual(scenario()) == pytest.approx(taken_after)
