"""An engine restart and an engine crash, on an engine of the test's own: gateway and data come back."""

import os
import signal
import time

import pytest
from tests.support.gateway import TestGateway, pod_manifest, pvc_manifest
from tests.support.holdfast_cli import HoldfastCli
from tests.support.private_container_engine import PrivateContainerEngine
from tests.support.step_interruption import run_and_act_at

pytestmark = [
    pytest.mark.engine,
    pytest.mark.slow,  # test_survival.py kills an engine always
    pytest.mark.skipif(os.geteuid() != 0, reason="an engine and a network namespace of one's own need root"),
]


@pytest.fixture
def engine():
    with PrivateContainerEngine() as made:
        made.load_node_image()
        yield made


@pytest.fixture
def gateway(engine, tmp_path):
    """A gateway on that engine, with a pod that has written a file."""
    command = HoldfastCli(
        tmp_path, prefix=engine.prefix, DOCKER_HOST=engine.socket, HOLDFAST_WORKLOADS="false"
    )
    gateway = TestGateway("own", command)
    gateway.up()
    gateway.apply(pvc_manifest("work"), pod_manifest("keeper", claim="work"))
    gateway.wait_ready("keeper")
    gateway.exec_in_pod("keeper", "sh", "-c", "echo kept > /data/file && sync")
    yield gateway
    gateway.destroy()


def assert_data_intact(gateway):
    gateway.wait_ready("keeper")
    assert gateway.exec_in_pod("keeper", "cat", "/data/file") == "kept\n"


def test_gateway_recovers_after_engine_restart(engine, gateway):
    before = engine.inspect(gateway.container)["State"]["StartedAt"]
    engine.stop()
    engine.start()
    engine.wait_restarted(gateway.container, before)
    events = gateway.holdfast.events("up", gateway.name)
    started = [one for one in events if one["event"] == "step.finished" and one["step"] == "start-container"]
    assert not started
    assert_data_intact(gateway)


def test_gateway_recovers_after_engine_kill(engine, gateway):
    """The node outlives its engine for a moment; the next engine ends it and starts it again."""
    before = engine.inspect(gateway.container)["State"]["StartedAt"]
    engine.stop(signal.SIGKILL)
    engine.start()
    engine.wait_restarted(gateway.container, before)
    gateway.up()
    assert_data_intact(gateway)
    gateway.holdfast("stop", gateway.name)
    engine.stop()
    engine.start()
    state = engine.inspect(gateway.container)
    assert (state["State"]["Running"], state["HostConfig"]["RestartPolicy"]["Name"]) == (False, "no")
    gateway.holdfast("start", gateway.name)
    assert_data_intact(gateway)


@pytest.mark.parametrize("step", ["ensure-volume", "wait-node-registered"])
def test_command_waits_for_an_engine_that_restarts(engine, gateway, step):
    """The engine is away for ten seconds in the middle of the command."""

    def restart():
        engine.stop()
        time.sleep(10)
        engine.start()

    code, rest = run_and_act_at(gateway.holdfast, step, restart, "up", gateway.name, "--recreate")
    assert code == 0, rest
    assert_data_intact(gateway)
