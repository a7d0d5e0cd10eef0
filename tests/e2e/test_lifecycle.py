"""A gateway's life with real parts: what was written before a stop, crash or removal is there afterwards."""

import os
import signal
import socket
import time

import pytest
from tests.support.holdfast_cli import OTHER_HOSTNAME_PREFIX, HoldfastCli

from holdfast.containers import GATEWAY, create_network
from holdfast.remote import connect

pytestmark = pytest.mark.engine


@pytest.fixture(scope="module")
def gateway(new_gateway):
    """A gateway with a pod that has written a file into its volume."""
    made = new_gateway("keeper")
    made.up()
    return made.write_test_file()


def container_and_network_ids(gateway):
    """The ids of what the engine has of the gateway: just one of each."""
    client = connect().client
    ours = {"label": f"{GATEWAY}={gateway.name}"}
    (container,) = client.containers(all=True, filters=ours)
    (network,) = client.networks(filters=ours)
    (volume,) = client.volumes(filters=ours)["Volumes"]
    return container["Id"], network["Id"], volume["Name"]


def test_stop_and_start_restore_pod_and_data(gateway):
    uid = gateway.get("pod", "keeper")["metadata"]["uid"]
    gateway.holdfast("stop", gateway.name)
    seen = gateway.inspect()
    assert (seen["State"]["Status"], seen["State"]["ExitCode"]) == ("exited", 0)
    assert seen["HostConfig"]["RestartPolicy"]["Name"] == "no"  # an engine that is restarted leaves it so
    assert "stopped" in gateway.holdfast.run("status", gateway.name).stdout
    gateway.holdfast("start", gateway.name)
    gateway.assert_test_file_intact()
    assert gateway.get("pod", "keeper")["metadata"]["uid"] == uid


def test_boot_deletes_the_provisioner_of_earlier_nodes(gateway):
    gateway.kubectl("create", "deployment", "local-path-provisioner", "-n", "kube-system", "--image=none")
    gateway.kubectl("create", "configmap", "local-path-config", "-n", "kube-system")
    gateway.holdfast("restart", gateway.name)
    names = gateway.kubectl("get", "deployments,configmaps", "-n", "kube-system", "-o", "name")
    assert "coredns" in names
    assert "local-path" not in names
    gateway.assert_test_file_intact()


@pytest.mark.skipif(os.geteuid() != 0, reason="the node's first process belongs to root")
def test_killed_node_restarts_automatically(gateway):
    before, since = gateway.inspect()["State"], int(time.time()) - 1
    os.kill(before["Pid"], signal.SIGKILL)
    started = {"container": gateway.container, "event": "start"}
    for event in connect().client.events(decode=True, since=since, filters=started):
        assert event["status"] == "start"
        break
    gateway.up()
    after = gateway.inspect()
    assert after["RestartCount"] >= 1
    gateway.assert_test_file_intact()


def test_removed_container_and_network_are_recreated_on_volume(gateway):
    before, client = container_and_network_ids(gateway), connect().client
    client.remove_container(gateway.container, force=True)
    client.remove_network(gateway.container)
    assert "data-only" in gateway.holdfast.run("status", gateway.name).stdout
    gateway.up()
    after = container_and_network_ids(gateway)
    assert after[0] != before[0]
    assert after[1] != before[1]
    assert after[2] == before[2]
    gateway.assert_test_file_intact()
    assert gateway.up()["changed"] == []


@pytest.mark.skipif(os.geteuid() != 0, reason="a host name of one's own needs root")
def test_host_name_change_is_ignored(gateway):
    before = container_and_network_ids(gateway)
    renamed = HoldfastCli(gateway.holdfast.home, prefix=OTHER_HOSTNAME_PREFIX, HOLDFAST_WORKLOADS="false")
    assert renamed.json("up", gateway.name)["changed"] == []
    assert container_and_network_ids(gateway) == before
    gateway.assert_test_file_intact()


@pytest.mark.slow
def test_removed_container_is_recreated_on_same_volume(gateway):
    connect().client.remove_container(gateway.container, force=True)
    assert "data-only" in gateway.holdfast.run("status", gateway.name).stdout
    gateway.up()
    gateway.assert_test_file_intact()


def assert_attached(gateway):
    """The container knows its network by the id that the network has now."""
    (known,) = gateway.inspect()["NetworkSettings"]["Networks"].values()
    assert known["NetworkID"] == container_and_network_ids(gateway)[1]
    gateway.assert_test_file_intact()


def test_removed_network_is_recreated_and_foreign_network_is_left_alone(gateway):
    before, client = container_and_network_ids(gateway), connect().client
    client.stop(gateway.container)
    client.remove_network(gateway.container)
    foreign = client.create_network(gateway.container)["Id"]
    for command in ("up", "start"):
        ended = gateway.holdfast.run(command, gateway.name)
        assert (ended.returncode, "foreign-object" in ended.stderr) == (3, True), ended.stderr
    (found,) = client.networks(names=[f"^{gateway.container}$"])
    assert found["Id"] == foreign
    client.remove_network(foreign)
    gateway.up()
    after = container_and_network_ids(gateway)
    assert (after[0], after[2]) == (before[0], before[2])
    assert_attached(gateway)


@pytest.mark.slow
@pytest.mark.parametrize("known", ["old", "none"])
def test_manually_recreated_network_is_used(gateway, known):
    before, client = container_and_network_ids(gateway), connect().client
    client.stop(gateway.container)
    if known == "none":
        client.disconnect_container_from_network(gateway.container, gateway.container, force=True)
    client.remove_network(gateway.container)
    made = create_network(connect(), gateway.container, gateway=gateway.name)
    gateway.up()
    assert container_and_network_ids(gateway) == (before[0], made, before[2])
    assert_attached(gateway)


def test_port_change_recreates_container_and_keeps_data(gateway):
    with socket.socket() as free:  # outside the range from which `up` chooses for other gateways
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    assert gateway.up("--port", str(port))["server"] == f"https://127.0.0.1:{port}"
    gateway.assert_test_file_intact()


@pytest.mark.slow
def test_destroy_keeps_data_and_up_restores_it(gateway):
    gateway.holdfast("destroy", gateway.name, "--yes", gateway.name)
    assert gateway.name not in gateway.holdfast("list")
    gateway.up()
    gateway.assert_test_file_intact()


def test_repeated_up_reports_no_changes(gateway):
    before = gateway.inspect()
    assert gateway.up()["changed"] == []
    assert "Nothing had to be changed" in gateway.holdfast("up", gateway.name)
    after = gateway.inspect()
    assert (before["Id"], before["State"]["StartedAt"]) == (after["Id"], after["State"]["StartedAt"])
