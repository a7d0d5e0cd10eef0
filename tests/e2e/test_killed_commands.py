"""Commands killed in and after each of their steps: the same command again ends well, the data is there."""

import shutil

import pytest
from tests.support.gateway import own_ports
from tests.support.holdfast_cli import HoldfastCli
from tests.support.step_interruption import FINISHED, STARTED, kill_at

from holdfast.containers import find_container, find_network, find_volume
from holdfast.gateway import GatewayContext
from holdfast.gateway.plan import up_steps
from holdfast.remote import connect

pytestmark = pytest.mark.engine

STOP = ("let-stop", "stop-container")
START = ("keep-running", "start-container", "write-kubeconfig", "run-probe", "write-metadata")
START_WORKLOADS = ("write-client-files", "wait-rollout")
RECREATE = ("replace-old", "ensure-network", "ensure-container", "start-container", "run-probe")
DESTROY = ("let-stop", "stop-container", "remove-container", "remove-network", "forget-gateway")
DESTROY_DATA = (*DESTROY[:4], "remove-volume", "forget-gateway")
MOMENTS = (STARTED, FINISHED)


@pytest.fixture(scope="module")
def gateway_with_data(new_gateway, tmp_path_factory):
    """A gateway with a pod that has written a file into its workspace."""
    home = HoldfastCli(tmp_path_factory.mktemp("killed"), HOLDFAST_WORKLOADS="false", **own_ports())
    made = new_gateway("killed", holdfast=home)
    made.up()
    return made.write_test_file()


@pytest.fixture(scope="module")
def disposable_gateway(new_gateway):
    """A gateway that each test creates, and destroys with its data."""
    return new_gateway("doomed")


@pytest.fixture(scope="module")
def gateway_with_workloads(new_gateway, tmp_path_factory):
    """A gateway with holdfast's own workloads; used last, when `doomed` is gone: a host has room for few."""
    home = HoldfastCli(tmp_path_factory.mktemp("whole"), HOLDFAST_WORKLOADS="true", **own_ports())
    made = new_gateway("whole", holdfast=home)
    made.up()
    return made.write_test_file()


def changed_steps(gateway, monkeypatch, *words):
    """Run a command to its end: the steps that had something to do, besides those that only look."""
    monkeypatch.setenv("HOLDFAST_HOME", str(gateway.holdfast.home))
    looks = {step.name for step in up_steps(GatewayContext(gateway.name)) if step.repeat == "always"}
    told = gateway.holdfast.events(*words)
    return {event["step"] for event in told if event["event"] == "step.started"} - looks


def cases(steps, always):
    return [
        pytest.param(step, moment, marks=() if (step, moment) == always else pytest.mark.slow)
        for step in steps
        for moment in MOMENTS
    ]


def delete_local_files(gateway):
    """Take away what this machine knows of a gateway, so that each step of `start` has something to do."""
    shutil.rmtree(gateway.holdfast.home / "config" / "gateways" / gateway.name)


@pytest.mark.parametrize(("step", "moment"), cases(STOP, ("stop-container", "step.started")))
def test_killed_stop_can_be_rerun(gateway_with_data, step, moment):
    kill_at(gateway_with_data, step, moment, "stop", gateway_with_data.name)
    gateway_with_data.holdfast("stop", gateway_with_data.name)
    assert gateway_with_data.inspect()["State"]["Status"] == "exited"
    gateway_with_data.holdfast("start", gateway_with_data.name)
    gateway_with_data.assert_test_file_intact()


@pytest.mark.parametrize(("step", "moment"), cases(START, None))
def test_killed_start_can_be_rerun(gateway_with_data, step, moment):
    gateway_with_data.holdfast("stop", gateway_with_data.name)
    delete_local_files(gateway_with_data)
    kill_at(gateway_with_data, step, moment, "start", gateway_with_data.name)
    gateway_with_data.holdfast("start", gateway_with_data.name)
    gateway_with_data.assert_test_file_intact()


@pytest.mark.parametrize(("step", "moment"), cases(RECREATE, ("ensure-container", "step.started")))
def test_killed_recreate_can_be_rerun(gateway_with_data, step, moment):
    before = gateway_with_data.inspect()["Id"]
    kill_at(gateway_with_data, step, moment, "up", gateway_with_data.name, "--recreate")
    # The new container exists by then, and the run is unfinished: a rerun must not recreate it.
    at = (RECREATE.index(step), MOMENTS.index(moment))
    is_made = (RECREATE.index("ensure-container"), 0) < at < (RECREATE.index("run-probe"), 1)
    made = gateway_with_data.inspect()["Id"] if is_made else None
    gateway_with_data.up("--recreate")
    after = gateway_with_data.inspect()["Id"]
    assert after != before
    assert made in (None, after), "the rerun repeated a recreation of the killed run"
    gateway_with_data.assert_test_file_intact()


@pytest.mark.parametrize(("step", "moment"), cases(DESTROY, ("remove-container", "step.started")))
def test_killed_destroy_can_be_rerun(gateway_with_data, step, moment):
    words = ("destroy", gateway_with_data.name, "--yes", gateway_with_data.name)
    kill_at(gateway_with_data, step, moment, *words)
    gateway_with_data.holdfast(*words)
    assert gateway_with_data.name not in gateway_with_data.holdfast("list")
    gateway_with_data.up()
    gateway_with_data.assert_test_file_intact()


@pytest.mark.parametrize(("step", "moment"), cases(DESTROY_DATA, None))
def test_killed_destroy_with_data_can_be_rerun(disposable_gateway, step, moment):
    words = ("destroy", disposable_gateway.name, "--data", "--yes", disposable_gateway.name)
    disposable_gateway.up()
    assert find_volume(connect(), disposable_gateway.container) is not None
    kill_at(disposable_gateway, step, moment, *words)
    disposable_gateway.holdfast(*words)
    engine = connect()
    for find in (find_container, find_network, find_volume):
        assert find(engine, disposable_gateway.container) is None, (
            f"{find.__name__} after a kill at {moment} of {step}"
        )
    assert disposable_gateway.name not in disposable_gateway.holdfast("list")


@pytest.mark.slow
def test_every_step_with_effect_is_covered(gateway_with_data, disposable_gateway, monkeypatch):
    assert changed_steps(gateway_with_data, monkeypatch, "stop", gateway_with_data.name) == set(STOP)
    delete_local_files(gateway_with_data)
    assert changed_steps(gateway_with_data, monkeypatch, "start", gateway_with_data.name) == set(START)
    assert changed_steps(gateway_with_data, monkeypatch, "up", gateway_with_data.name, "--recreate") == set(
        RECREATE
    )
    assert changed_steps(
        gateway_with_data, monkeypatch, "destroy", gateway_with_data.name, "--yes", gateway_with_data.name
    ) == set(DESTROY)
    gateway_with_data.up()
    gateway_with_data.assert_test_file_intact()
    disposable_gateway.up()
    words = ("destroy", disposable_gateway.name, "--data", "--yes", disposable_gateway.name)
    assert changed_steps(disposable_gateway, monkeypatch, *words) == set(DESTROY_DATA)


@pytest.mark.parametrize(("step", "moment"), cases(START_WORKLOADS, None))
def test_killed_start_with_workloads_can_be_rerun(gateway_with_workloads, step, moment):
    gateway_with_workloads.holdfast("stop", gateway_with_workloads.name)
    delete_local_files(gateway_with_workloads)
    kill_at(gateway_with_workloads, step, moment, "start", gateway_with_workloads.name)
    gateway_with_workloads.holdfast("start", gateway_with_workloads.name)
    gateway_with_workloads.assert_test_file_intact()
    # Its API is asked with the client's certificate, which was lost on this machine.
    assert (
        gateway_with_workloads.holdfast.json("sandbox", "list", "-g", gateway_with_workloads.name)[
            "sandboxes"
        ]
        == []
    )
    deployments = gateway_with_workloads.get("deployments", "-n", "holdfast")["items"]
    assert {each["metadata"]["name"] for each in deployments} == {"holdfast-api", "holdfast-controller"}
    assert all(each["status"]["readyReplicas"] == 1 for each in deployments)


@pytest.mark.slow
def test_every_workload_start_step_with_effect_is_covered(gateway_with_workloads, monkeypatch):
    gateway_with_workloads.holdfast("stop", gateway_with_workloads.name)
    delete_local_files(gateway_with_workloads)
    assert changed_steps(gateway_with_workloads, monkeypatch, "start", gateway_with_workloads.name) == {
        *START,
        "write-client-files",
    }
    gateway_with_workloads.assert_test_file_intact()
