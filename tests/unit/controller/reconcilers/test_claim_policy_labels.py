"""Labels by which a managed network policy allows connections, with and without the check."""

from __future__ import annotations

import asyncio

import pytest
from tests.support.fake_api_server import TEMPLATE, FakeApiServer, claim_manifest, pool_manifest
from tests.support.virtual_time import run_virtual, virtual_now

from holdfast.controller.controller import Controller
from holdfast.sandbox import find_condition

LABEL = {"sandbox.users.io/role": "front"}


def policy(labels):
    peer = {"podSelector": {"matchLabels": LABEL}}
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": {"name": "n", "namespace": "ns", "uid": "n-1", "labels": labels},
        "spec": {"podSelector": {}, "ingress": [{"from": [peer]}]},
    }


@pytest.mark.parametrize(
    ("rejects", "labels", "is_rejected"),
    [
        (False, {"holdfast.dev/managed-by": "holdfast"}, False),
        (True, {"holdfast.dev/managed-by": "holdfast"}, True),
        (True, {}, False),
    ],
)
def test_label_of_a_policy_is_rejected_only_if_requested(rejects, labels, is_rejected):
    server = FakeApiServer(notify_before_response=False)
    server.controller = Controller(server, clock=virtual_now, rejects_policy_labels=rejects)
    claim = claim_manifest("c")
    claim["spec"]["additionalPodMetadata"] = {"labels": LABEL}

    async def scenario():
        running = asyncio.create_task(server.controller.run())
        for each in (policy(labels), TEMPLATE, pool_manifest(0), claim):
            server.notify(server.store(each))
        await asyncio.sleep(1.0)
        running.cancel()

    run_virtual(scenario())
    reason = find_condition(server.objects["SandboxClaim", "c"], "Ready").get("reason")
    assert (reason == "InvalidMetadata") is is_rejected
    assert (("Sandbox", "c") in server.objects) is not is_rejected
