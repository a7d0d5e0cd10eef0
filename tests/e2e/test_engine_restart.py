"""An engine restart and an engine crash, on an engine of the test's own: the gateway comes back by itself."""

import os
import signal

import pytest
from tests.support.commands import Holdfast
from tests.support.gateways import TestGateway, claim, pod
from tests.support.private_engine import PrivateEngine

pytestmark = [
    pytest.mark.engine,
    pytest.mark.skipif(os.geteuid() != 0, reason="an engine and a network namespace of one's own need root"),
]


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL], ids=["restarted", "killed"])
def test_a_gateway_comes_back_by_itself_when_its_engine_was(how, tmp_path):
    with PrivateEngine() as engine:
        engine.load_node_image()
        holdfast = Holdfast(tmp_path, prefix=engine.prefix, DOCKER_HOST=engine.socket)
        gateway = TestGateway("own", holdfast)
        gateway.up()
        gateway.apply(claim("work"), pod("keeper", claim="work"))
        gateway.wait_ready("keeper")
        gateway.execute("keeper", "sh", "-c", "echo kept > /data/file && sync")
        engine.stop(how)
        engine.start()
        events = holdfast.events("up", "own")
        gateway.wait_ready("keeper")
        assert gateway.execute("keeper", "cat", "/data/file") == "kept\n"
        assert not [
            one for one in events if one["event"] == "step.finished" and one["step"] == "start-container"
        ]
        gateway.destroy()
