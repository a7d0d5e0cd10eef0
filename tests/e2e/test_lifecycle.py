"""A gateway's life with real parts: what was written before a stop, crash or removal is there afterwards."""

import os
import signal
import socket
import time

import pytest
from tests.support.commands import OTHER_HOST, Holdfast

from holdfast.containers.engine import connect
from holdfast.containers.labels import GATEWAY
from holdfast.containers.networks import create_network

pytestmark = pytest.mark.engine


@pytest.fixture(scope="module")
def keeper(new_gateway):
    """A gateway with a pod that has written a file into its volume."""
    made = new_gateway("keeper")
    made.up()
    return made.keep_a_file()


def parts(gateway):
    """The ids of what the engine has of the gateway: just one of each."""
    client = connect().client
    ours = {"label": f"{GATEWAY}={gateway.name}"}
    (container,) = client.containers(all=True, filters=ours)
    (network,) = client.networks(filters=ours)
    (volume,) = client.volumes(filters=ours)["Volumes"]
    return container["Id"], network["Id"], volume["Name"]


def test_stop_and_start_bring_the_pod_back_with_its_data(keeper):
    uid = keeper.get("pod", "keeper")["metadata"]["uid"]
    keeper.holdfast("stop", keeper.name)
    seen = keeper.inspect()
    assert (seen["State"]["Status"], seen["State"]["ExitCode"]) == ("exited", 0)
    assert seen["HostConfig"]["RestartPolicy"]["Name"] == "no"  # an engine that is restarted leaves it so
    assert "stopped" in keeper.holdfast.run("status", keeper.name).stdout
    keeper.holdfast("start", keeper.name)
    keeper.assert_kept()
    assert keeper.get("pod", "keeper")["metadata"]["uid"] == uid


@pytest.mark.skipif(os.geteuid() != 0, reason="the node's first process belongs to root")
def test_a_killed_node_comes_back_by_itself(keeper):
    before, since = keeper.inspect()["State"], int(time.time()) - 1
    os.kill(before["Pid"], signal.SIGKILL)
    started = {"container": keeper.container, "event": "start"}
    for event in connect().client.events(decode=True, since=since, filters=started):
        assert event["status"] == "start"
        break
    keeper.up()
    after = keeper.inspect()
    assert after["RestartCount"] >= 1
    keeper.assert_kept()


def test_container_and_network_are_both_made_again_around_the_volume(keeper):
    before, client = parts(keeper), connect().client
    client.remove_container(keeper.container, force=True)
    client.remove_network(keeper.container)
    assert "data-only" in keeper.holdfast.run("status", keeper.name).stdout
    keeper.up()
    after = parts(keeper)
    assert after[0] != before[0]
    assert after[1] != before[1]
    assert after[2] == before[2]
    keeper.assert_kept()
    assert keeper.up()["changed"] == []


@pytest.mark.skipif(os.geteuid() != 0, reason="a host name of one's own needs root")
def test_another_host_name_changes_nothing(keeper):
    before = parts(keeper)
    renamed = Holdfast(keeper.holdfast.home, prefix=OTHER_HOST, HOLDFAST_WORKLOADS="false")
    assert renamed.json("up", keeper.name)["changed"] == []
    assert parts(keeper) == before
    keeper.assert_kept()


@pytest.mark.slow
def test_a_removed_container_is_made_again_on_the_same_volume(keeper):
    connect().client.remove_container(keeper.container, force=True)
    assert "data-only" in keeper.holdfast.run("status", keeper.name).stdout
    keeper.up()
    keeper.assert_kept()


def assert_attached(gateway):
    """The container knows its network by the id that the network has now."""
    (known,) = gateway.inspect()["NetworkSettings"]["Networks"].values()
    assert known["NetworkID"] == parts(gateway)[1]
    gateway.assert_kept()


def test_a_removed_network_is_made_again_and_somebody_elses_in_its_place_is_left_alone(keeper):
    before, client = parts(keeper), connect().client
    client.stop(keeper.container)
    client.remove_network(keeper.container)
    foreign = client.create_network(keeper.container)["Id"]
    for command in ("up", "start"):
        ended = keeper.holdfast.run(command, keeper.name)
        assert (ended.returncode, "foreign-object" in ended.stderr) == (3, True), ended.stderr
    (found,) = client.networks(names=[f"^{keeper.container}$"])
    assert found["Id"] == foreign
    client.remove_network(foreign)
    keeper.up()
    after = parts(keeper)
    assert (after[0], after[2]) == (before[0], before[2])
    assert_attached(keeper)


@pytest.mark.slow
@pytest.mark.parametrize("known", ["old", "none"])
def test_a_network_that_was_made_anew_by_hand_is_taken(keeper, known):
    before, client = parts(keeper), connect().client
    client.stop(keeper.container)
    if known == "none":
        client.disconnect_container_from_network(keeper.container, keeper.container, force=True)
    client.remove_network(keeper.container)
    made = create_network(connect(), keeper.container, gateway=keeper.name)
    keeper.up()
    assert parts(keeper) == (before[0], made, before[2])
    assert_attached(keeper)


def test_another_port_remakes_the_container_and_keeps_the_data(keeper):
    with socket.socket() as free:  # outside the range from which `up` chooses for other gateways
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    assert keeper.up("--port", str(port))["server"] == f"https://127.0.0.1:{port}"
    keeper.assert_kept()


@pytest.mark.slow
def test_destroy_keeps_the_data_and_up_brings_it_back(keeper):
    keeper.holdfast("destroy", keeper.name, "--yes", keeper.name)
    assert keeper.name not in keeper.holdfast("list")
    keeper.up()
    keeper.assert_kept()


def test_up_again_changes_nothing_and_says_so(keeper):
    before = keeper.inspect()
    assert keeper.up()["changed"] == []
    assert "Nothing had to be changed" in keeper.holdfast("up", keeper.name)
    after = keeper.inspect()
    assert (before["Id"], before["State"]["StartedAt"]) == (after["Id"], after["State"]["StartedAt"])
