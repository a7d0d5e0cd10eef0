"""`up` killed at every step while it makes a gateway anew around its data: the workspace stays as it was."""

import json
import os
import signal
import uuid

import pytest
from tests.support.commands import Holdfast
from tests.support.gateways import TestGateway

from holdfast.containers.engine import connect

pytestmark = [pytest.mark.engine, pytest.mark.slow]


@pytest.fixture(scope="module")
def keeper(tmp_path_factory):
    home = Holdfast(tmp_path_factory.mktemp("home"), HOLDFAST_WORKLOADS="false")
    made = TestGateway(f"data-{uuid.uuid4().hex[:6]}", home)
    try:
        made.up()
        yield made.keep_a_file()
    finally:
        made.destroy()


def lose_all_but_the_volume(gateway):
    client = connect().client
    client.remove_container(gateway.container, force=True)
    client.remove_network(gateway.container)


def kill_at_start(gateway, number):
    """Start `up` and kill it when its n-th step starts; which one, or nothing when there was none."""
    running, count, step = gateway.holdfast.start("up", gateway.name, "--json"), 0, ""
    try:
        for line in running.stderr:
            event = json.loads(line)
            count += event["event"] == "step.started"
            if count == number:
                os.kill(running.pid, signal.SIGKILL)
                step = event["step"]
                break
    finally:
        running.communicate(timeout=120)
    return step


@pytest.mark.parametrize("part", [0, 1])
def test_up_killed_at_each_of_its_steps(keeper, part):
    """In two parts, so that each of them is short: every other step."""
    killed, number = [], 1 + part
    while True:
        lose_all_but_the_volume(keeper)
        step = kill_at_start(keeper, number)
        keeper.up()
        keeper.assert_kept()
        if not step:
            break
        killed.append(step)
        number += 2
    assert len(killed) >= 5, killed
