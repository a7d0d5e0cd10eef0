"""A gateway with its own workloads, brought up again and again and then upgraded: what runs is left alone."""

import json

import pytest
from tests.support.holdfast_cli import HoldfastCli
from tests.support.node_images import NodeImages

from holdfast.containers import GATEWAY
from holdfast.remote import connect

pytestmark = [pytest.mark.engine, pytest.mark.slow]


@pytest.fixture(scope="module")
def gateway(new_gateway, tmp_path_factory):
    """A gateway with all it has, and a pod that has written a file into its workspace."""
    made = new_gateway("again", holdfast=HoldfastCli(tmp_path_factory.mktemp("home")))
    made.up()
    return made.write_test_file()


def running_parts(gateway):
    """What the engine has of the gateway, and since when its container runs."""
    client, ours = connect().client, {"label": f"{GATEWAY}={gateway.name}"}
    state = gateway.inspect()
    return {
        "containers": [one["Id"] for one in client.containers(all=True, filters=ours)],
        "networks": [one["Id"] for one in client.networks(filters=ours)],
        "volumes": [one["Name"] for one in client.volumes(filters=ours)["Volumes"]],
        "started": (state["State"]["StartedAt"], state["RestartCount"]),
    }


def objects(gateway, kinds, *, about=lambda item: item["metadata"]["resourceVersion"]):
    found = gateway.get(kinds, "--all-namespaces")["items"]
    return {(one["kind"], one["metadata"]["name"]): about(one) for one in found}


def restarts(pod):
    return pod["metadata"]["uid"], [one["restartCount"] for one in pod["status"]["containerStatuses"]]


def gateway_state(gateway):
    """All that twenty times `up` must leave as it is: Node objects live on, with the uid they had."""
    return {
        **running_parts(gateway),
        "nodes": objects(gateway, "nodes", about=lambda node: node["metadata"]["uid"]),
        "volumes of pods": objects(gateway, "pv,pvc"),
        "pods": objects(gateway, "pods", about=restarts),
        "workloads": objects(gateway, "deployments", about=lambda one: one["metadata"]["generation"]),
        "secrets": objects(gateway, "secrets"),
    }


def test_twenty_ups_create_no_duplicates_and_restart_nothing(gateway):
    before = gateway_state(gateway)
    for kind in ("containers", "networks", "volumes", "nodes"):
        assert len(before[kind]) == 1, before
    for _ in range(20):
        assert gateway.up()["changed"] == []
    assert gateway_state(gateway) == before
    gateway.assert_test_file_intact()


def test_upgrade_updates_workloads(gateway):
    """The health gate asks the gateway's own API, and its certificates are the same afterwards."""
    secrets, pod = objects(gateway, "secrets"), gateway.get("pod", "keeper")["metadata"]["uid"]
    with NodeImages() as images:
        other = images.build("other")
        result = gateway.holdfast.json("upgrade", gateway.name, "--image", other)
        assert result["upgraded_to"]
        assert gateway.inspect()["Image"] == images.id_of(other)
        after = objects(gateway, "secrets")
        assert {key: after.get(key) for key in secrets} == secrets
        assert gateway.get("pod", "keeper")["metadata"]["uid"] == pod
        gateway.assert_test_file_intact()
        (api,) = [
            one for (_, name), one in objects(gateway, "deployments", about=lambda one: one).items()
            if name == "holdfast-api"
        ]  # fmt: skip
        assert api["status"]["readyReplicas"] == 1
        # An upgrade that is finished is forgotten: the next `up` proves once more that pods run.
        assert [gateway.up()["changed"] for _ in range(2)] == [["run-probe"], []]

        dies = images.build("dies", entrypoint=["/bin/sh", "-c", "echo no luck; exit 1"])
        ended = gateway.holdfast.run("upgrade", gateway.name, "--image", dies, "--json")
        told = json.loads(ended.stderr.splitlines()[-1])
        assert (ended.returncode, told["code"]) == (3, "upgrade-rolled-back"), ended.stderr
        assert gateway.inspect()["Image"] == images.id_of(other)
        gateway.assert_test_file_intact()
        assert [gateway.up()["changed"] for _ in range(2)] == [["run-probe"], []]
        gateway.destroy()
