"""Commands killed in and after each of their steps: the same command again ends well, the data is there."""

import json
import os
import signal

import pytest

pytestmark = pytest.mark.engine

STOP = ("let-stop", "stop-container")
START = ("keep-running", "start-container", "write-kubeconfig")
RECREATE = ("replace-old", "ensure-network", "ensure-container")
DESTROY = ("stop-container", "remove-container", "remove-network", "forget-gateway")
MOMENTS = ("step.started", "step.finished")


@pytest.fixture(scope="module")
def keeper(new_gateway):
    """A gateway with a pod that has written a file into its workspace."""
    made = new_gateway("killed")
    made.up()
    return made.keep_a_file()


def kill_at(gateway, step, moment, *words):
    """Start a command and kill it as soon as it tells of that moment of that step; False if it never did."""
    child = gateway.holdfast.start(*words, "--json")
    try:
        for line in child.stderr:
            event = json.loads(line)
            if event.get("event") == moment and event.get("step") == step:
                os.kill(child.pid, signal.SIGKILL)
                return True
        return False
    finally:
        child.communicate(timeout=120)


def cases(steps, always):
    return [
        pytest.param(step, moment, marks=() if (step, moment) == always else pytest.mark.slow)
        for step in steps
        for moment in MOMENTS
    ]


@pytest.mark.parametrize(("step", "moment"), cases(STOP, ("stop-container", "step.started")))
def test_stop(keeper, step, moment):
    assert kill_at(keeper, step, moment, "stop", keeper.name)
    keeper.holdfast("stop", keeper.name)
    assert keeper.inspect()["State"]["Status"] == "exited"
    keeper.holdfast("start", keeper.name)
    keeper.assert_kept()


@pytest.mark.parametrize(("step", "moment"), cases(START, None))
def test_start(keeper, step, moment):
    keeper.holdfast("stop", keeper.name)
    kill_at(keeper, step, moment, "start", keeper.name)
    keeper.holdfast("start", keeper.name)
    keeper.assert_kept()


@pytest.mark.parametrize(("step", "moment"), cases(RECREATE, ("ensure-container", "step.started")))
def test_recreate(keeper, step, moment):
    before = keeper.inspect()["Id"]
    assert kill_at(keeper, step, moment, "up", keeper.name, "--recreate")
    made = keeper.inspect()["Id"] if (step, moment) == ("ensure-container", "step.finished") else None
    keeper.up("--recreate")
    after = keeper.inspect()["Id"]
    assert after != before
    assert made in (None, after), "what the killed run had made anew was made a second time"
    keeper.assert_kept()


@pytest.mark.parametrize(("step", "moment"), cases(DESTROY, ("remove-container", "step.started")))
def test_destroy(keeper, step, moment):
    words = ("destroy", keeper.name, "--yes", keeper.name)
    assert kill_at(keeper, step, moment, *words)
    keeper.holdfast(*words)
    assert keeper.name not in keeper.holdfast("list")
    keeper.up()
    keeper.assert_kept()
