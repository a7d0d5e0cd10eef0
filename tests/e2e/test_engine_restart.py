"""An engine restart and an engine crash, on an engine of the test's own: gateway and data come back."""

import os
import signal

import pytest
from tests.support.commands import Holdfast
from tests.support.gateways import TestGateway, claim, pod
from tests.support.private_engine import PrivateEngine

pytestmark = [
    pytest.mark.engine,
    pytest.mark.slow,  # test_survival.py kills an engine always
    pytest.mark.skipif(os.geteuid() != 0, reason="an engine and a network namespace of one's own need root"),
]


@pytest.fixture
def engine():
    with PrivateEngine() as made:
        made.load_node_image()
        yield made


@pytest.fixture
def keeper(engine, tmp_path):
    """A gateway on that engine, with a pod that has written a file."""
    command = Holdfast(tmp_path, prefix=engine.prefix, DOCKER_HOST=engine.socket, HOLDFAST_WORKLOADS="false")
    gateway = TestGateway("own", command)
    gateway.up()
    gateway.apply(claim("work"), pod("keeper", claim="work"))
    gateway.wait_ready("keeper")
    gateway.execute("keeper", "sh", "-c", "echo kept > /data/file && sync")
    yield gateway
    gateway.destroy()


def assert_kept(gateway):
    gateway.wait_ready("keeper")
    assert gateway.execute("keeper", "cat", "/data/file") == "kept\n"


def test_a_gateway_comes_back_by_itself_when_its_engine_was_restarted(engine, keeper):
    before = engine.inspect(keeper.container)["State"]["StartedAt"]
    engine.stop()
    engine.start()
    engine.wait_started_again(keeper.container, before)
    events = keeper.holdfast.events("up", keeper.name)
    started = [one for one in events if one["event"] == "step.finished" and one["step"] == "start-container"]
    assert not started
    assert_kept(keeper)


def test_a_gateway_comes_back_by_itself_when_its_engine_was_killed(engine, keeper):
    """The node outlives its engine for a moment; the next engine ends it and starts it again."""
    before = engine.inspect(keeper.container)["State"]["StartedAt"]
    engine.stop(signal.SIGKILL)
    engine.start()
    engine.wait_started_again(keeper.container, before)
    keeper.up()
    assert_kept(keeper)
    keeper.holdfast("stop", keeper.name)
    engine.stop()
    engine.start()
    state = engine.inspect(keeper.container)
    assert (state["State"]["Running"], state["HostConfig"]["RestartPolicy"]["Name"]) == (False, "no")
    keeper.holdfast("start", keeper.name)
    assert_kept(keeper)
