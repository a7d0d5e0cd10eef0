"""A new pod waits for the binding of its PVCs: the scheduler would make it wait a second."""

from __future__ import annotations

import asyncio

import pytest
from tests.support.fake_api_server import FakeApiServer
from tests.support.sandbox_objects import sandbox, workspace_claim_template
from tests.support.virtual_time import run_virtual, virtual_now

from holdfast.controller.controller import Controller
from holdfast.controller.reconcilers.sandbox import BINDING_GRACE


class NodeWithStorage(FakeApiServer):
    """An API server whose provisioner binds each new PVC after some time, in three writes."""

    def __init__(self, bind_after):
        super().__init__(notify_before_response=False)
        self.bind_after, self.created_at = bind_after, {}

    async def create(self, manifest):
        loop = asyncio.get_running_loop()
        self.created_at[manifest["kind"]] = loop.time()
        if manifest["kind"] == "PersistentVolumeClaim" and self.bind_after is not None:
            for delay, phase in ((0.3, "Pending"), (0.6, "Pending"), (1.0, "Bound")):
                loop.call_later(self.bind_after * delay, self.set_phase, manifest["metadata"]["name"], phase)
        return await super().create(manifest)

    def set_phase(self, name, phase):
        pvc = self.objects["PersistentVolumeClaim", name]
        self.notify(self.store({**pvc, "status": {"phase": phase}}))


def seconds_until_pod(bind_after, **spec):
    """Return the time between the creation of the sandbox and that of its pod, and the server."""

    async def scenario():
        server = NodeWithStorage(bind_after)
        server.controller = controller = Controller(server, clock=virtual_now)
        running = asyncio.create_task(controller.run())
        started = asyncio.get_running_loop().time()
        server.notify(server.store(sandbox(**spec)))
        await asyncio.sleep(2)
        running.cancel()
        return server.created_at["Pod"] - started, server

    return run_virtual(scenario())


def test_pod_is_created_as_soon_as_the_pvc_is_bound():
    seconds, server = seconds_until_pod(0.05, volumeClaimTemplates=[workspace_claim_template()])
    assert seconds == pytest.approx(0.05, abs=0.03)
    assert server.requests.count(("create", "PersistentVolumeClaim")) == 1
    assert server.requests.count(("create", "Pod")) == 1


@pytest.mark.parametrize("bind_after", [None, 1.0])
def test_pod_does_not_wait_long_for_a_pvc_that_only_the_scheduler_binds(bind_after):
    seconds, server = seconds_until_pod(bind_after, volumeClaimTemplates=[workspace_claim_template()])
    assert seconds == pytest.approx(BINDING_GRACE, abs=0.05)
    assert server.requests.count(("create", "Pod")) == 1


def test_all_pvcs_count():
    templates = [workspace_claim_template(), workspace_claim_template("data")]
    seconds, server = seconds_until_pod(0.1, volumeClaimTemplates=templates)
    assert seconds == pytest.approx(0.11, abs=0.05)
    assert server.requests.count(("create", "PersistentVolumeClaim")) == 2


def test_pod_without_pvcs_does_not_wait():
    seconds, _ = seconds_until_pod(None)
    assert seconds == pytest.approx(0, abs=0.02)
