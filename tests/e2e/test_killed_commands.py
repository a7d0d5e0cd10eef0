"""Commands killed in and after each of their steps: the same command again ends well, the data is there."""

import shutil

import pytest
from tests.support.commands import Holdfast
from tests.support.moments import FINISHED, STARTED, kill_at

from holdfast.containers.containers import find_container
from holdfast.containers.engine import connect
from holdfast.containers.networks import find_network, find_volume
from holdfast.gateway.plan import up_steps
from holdfast.gateway.work import Work

pytestmark = pytest.mark.engine

STOP = ("let-stop", "stop-container")
START = ("keep-running", "start-container", "write-kubeconfig", "run-probe", "write-metadata")
START_WORKLOADS = ("write-client-files", "wait-rollout")
RECREATE = ("replace-old", "ensure-network", "ensure-container", "start-container", "run-probe")
DESTROY = ("let-stop", "stop-container", "remove-container", "remove-network", "forget-gateway")
DESTROY_DATA = (*DESTROY[:4], "remove-volume", "forget-gateway")
MOMENTS = (STARTED, FINISHED)


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


@pytest.fixture(scope="module")
def whole(new_gateway, tmp_path_factory):
    """A gateway with holdfast's own workloads; used last, when `doomed` is gone: a host has room for few."""
    home = Holdfast(tmp_path_factory.mktemp("whole"), HOLDFAST_WORKLOADS="true")
    made = new_gateway("whole", holdfast=home)
    made.up()
    return made.keep_a_file()


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


@pytest.mark.parametrize(("step", "moment"), cases(START_WORKLOADS, None))
def test_start_with_workloads(whole, step, moment):
    whole.holdfast("stop", whole.name)
    lose_files(whole)
    kill_at(whole, step, moment, "start", whole.name)
    whole.holdfast("start", whole.name)
    whole.assert_kept()
    # Its API is asked with the client's certificate, which was lost on this machine.
    assert whole.holdfast.json("sandbox", "list", "-g", whole.name)["sandboxes"] == []
    deployments = whole.get("deployments", "-n", "holdfast")["items"]
    assert {each["metadata"]["name"] for each in deployments} == {"holdfast-api", "holdfast-controller"}
    assert all(each["status"]["readyReplicas"] == 1 for each in deployments)


@pytest.mark.slow
def test_no_step_of_a_start_with_workloads_is_left_out(whole, monkeypatch):
    whole.holdfast("stop", whole.name)
    lose_files(whole)
    assert effects(whole, monkeypatch, "start", whole.name) == {*START, "write-client-files"}
    whole.assert_kept()
