"""Commands killed in and after each of their steps: the same command again ends well, the data is there."""

import json
import os
import shutil
import signal
import subprocess
from contextlib import contextmanager

import pytest

from holdfast.containers.containers import find_container
from holdfast.containers.engine import connect
from holdfast.containers.networks import find_network, find_volume
from holdfast.gateway.plan import up_steps
from holdfast.gateway.work import Work

pytestmark = pytest.mark.engine

STOP = ("let-stop", "stop-container")
START = ("keep-running", "start-container", "write-kubeconfig", "run-probe", "write-metadata")
RECREATE = ("replace-old", "ensure-network", "ensure-container", "start-container", "run-probe")
DESTROY = ("let-stop", "stop-container", "remove-container", "remove-network", "forget-gateway")
DESTROY_DATA = (*DESTROY[:4], "remove-volume", "forget-gateway")
MOMENTS = ("step.started", "step.finished")


@pytest.fixture(scope="module")
def keeper(new_gateway):
    """A gateway with a pod that has written a file into its workspace."""
    made = new_gateway("killed")
    made.up()
    return made.keep_a_file()


@pytest.fixture(scope="module")
def doomed(new_gateway):
    """A gateway that each test brings up anew, and destroys with its data."""
    return new_gateway("doomed")


@contextmanager
def full_pipe():
    """The end of a pipe that takes nothing more: who prints to it waits."""
    reading, writing = os.pipe()
    try:
        os.set_blocking(writing, False)
        try:
            while True:
                os.write(writing, bytes(4096))
        except BlockingIOError:
            os.set_blocking(writing, True)
        yield writing
    finally:
        os.close(reading)
        os.close(writing)


def kill_at(gateway, step, moment, *words):
    """Run a command and kill it as soon as it tells of that moment of that step; fails if it never does.

    It cannot print its result, so that it never ends before the kill, not even in its last step.
    """
    told, holdfast = [], gateway.holdfast
    with full_pipe() as stdout:
        child = subprocess.Popen(
            holdfast.argv(*words, "--json"), env=holdfast.environment, stdout=stdout,
            stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        try:
            for line in child.stderr:
                event = json.loads(line)
                told.append((event.get("event"), event.get("step")))
                if told[-1] == (moment, step) or told[-1][0] in ("run.finished", "run.failed"):
                    break
        finally:
            child.send_signal(signal.SIGKILL)
            child.communicate(timeout=120)
    assert told[-1:] == [(moment, step)], f"it was to be killed at {moment} of {step}: {told}"
    assert child.returncode == -signal.SIGKILL


def effects(gateway, monkeypatch, *words):
    """Run a command to its end: the steps that had something to do, besides those that only look."""
    monkeypatch.setenv("HOLDFAST_HOME", str(gateway.holdfast.home))
    looks = {step.name for step in up_steps(Work(gateway.name)) if step.repeat == "always"}
    told = gateway.holdfast.events(*words)
    return {event["step"] for event in told if event["event"] == "step.started"} - looks


def cases(steps, always):
    return [
        pytest.param(step, moment, marks=() if (step, moment) == always else pytest.mark.slow)
        for step in steps
        for moment in MOMENTS
    ]


def lose_files(gateway):
    """Take away what this machine knows of a gateway, so that each step of `start` has something to do."""
    shutil.rmtree(gateway.holdfast.home / "config" / "gateways" / gateway.name)


@pytest.mark.parametrize(("step", "moment"), cases(STOP, ("stop-container", "step.started")))
def test_stop(keeper, step, moment):
    kill_at(keeper, step, moment, "stop", keeper.name)
    keeper.holdfast("stop", keeper.name)
    assert keeper.inspect()["State"]["Status"] == "exited"
    keeper.holdfast("start", keeper.name)
    keeper.assert_kept()


@pytest.mark.parametrize(("step", "moment"), cases(START, None))
def test_start(keeper, step, moment):
    keeper.holdfast("stop", keeper.name)
    lose_files(keeper)
    kill_at(keeper, step, moment, "start", keeper.name)
    keeper.holdfast("start", keeper.name)
    keeper.assert_kept()


@pytest.mark.parametrize(("step", "moment"), cases(RECREATE, ("ensure-container", "step.started")))
def test_recreate(keeper, step, moment):
    before = keeper.inspect()["Id"]
    kill_at(keeper, step, moment, "up", keeper.name, "--recreate")
    # In between the new container is there for sure: all was not yet done, so that nothing is asked for anew.
    at = (RECREATE.index(step), MOMENTS.index(moment))
    is_made = (RECREATE.index("ensure-container"), 0) < at < (RECREATE.index("run-probe"), 1)
    made = keeper.inspect()["Id"] if is_made else None
    keeper.up("--recreate")
    after = keeper.inspect()["Id"]
    assert after != before
    assert made in (None, after), "what the killed run had made anew was made a second time"
    keeper.assert_kept()


@pytest.mark.parametrize(("step", "moment"), cases(DESTROY, ("remove-container", "step.started")))
def test_destroy(keeper, step, moment):
    words = ("destroy", keeper.name, "--yes", keeper.name)
    kill_at(keeper, step, moment, *words)
    keeper.holdfast(*words)
    assert keeper.name not in keeper.holdfast("list")
    keeper.up()
    keeper.assert_kept()


@pytest.mark.parametrize(("step", "moment"), cases(DESTROY_DATA, None))
def test_destroy_with_data(doomed, step, moment):
    words = ("destroy", doomed.name, "--data", "--yes", doomed.name)
    doomed.up()
    assert find_volume(connect(), doomed.container) is not None
    kill_at(doomed, step, moment, *words)
    doomed.holdfast(*words)
    engine = connect()
    for find in (find_container, find_network, find_volume):
        assert find(engine, doomed.container) is None, f"{find.__name__} after a kill at {moment} of {step}"
    assert doomed.name not in doomed.holdfast("list")


@pytest.mark.slow
def test_no_step_that_has_something_to_do_is_left_out(keeper, doomed, monkeypatch):
    assert effects(keeper, monkeypatch, "stop", keeper.name) == set(STOP)
    lose_files(keeper)
    assert effects(keeper, monkeypatch, "start", keeper.name) == set(START)
    assert effects(keeper, monkeypatch, "up", keeper.name, "--recreate") == set(RECREATE)
    assert effects(keeper, monkeypatch, "destroy", keeper.name, "--yes", keeper.name) == set(DESTROY)
    keeper.up()
    keeper.assert_kept()
    doomed.up()
    words = ("destroy", doomed.name, "--data", "--yes", doomed.name)
    assert effects(doomed, monkeypatch, *words) == set(DESTROY_DATA)
