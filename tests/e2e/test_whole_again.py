"""A gateway with its own workloads, brought up again and again and then upgraded: what runs is left alone."""

import json

import pytest
from tests.support.commands import Holdfast
from tests.support.node_images import NodeImages

from holdfast.containers.engine import connect
from holdfast.containers.labels import GATEWAY

pytestmark = [pytest.mark.engine, pytest.mark.slow]


@pytest.fixture(scope="module")
def keeper(new_gateway, tmp_path_factory):
    """A gateway with all it has, and a pod that has written a file into its workspace."""
    made = new_gateway("again", holdfast=Holdfast(tmp_path_factory.mktemp("home")))
    made.up()
    return made.keep_a_file()


def parts(gateway):
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


def seen(gateway):
    """All that twenty times `up` must leave as it is: Node objects live on, with the uid they had."""
    return {
        **parts(gateway),
        "nodes": objects(gateway, "nodes", about=lambda node: node["metadata"]["uid"]),
        "volumes of pods": objects(gateway, "pv,pvc"),
        "pods": objects(gateway, "pods", about=restarts),
        "workloads": objects(gateway, "deployments", about=lambda one: one["metadata"]["generation"]),
        "secrets": objects(gateway, "secrets"),
    }


def test_twenty_times_up_is_one_of_each_and_restarts_nothing(keeper):
    before = seen(keeper)
    for kind in ("containers", "networks", "volumes", "nodes"):
        assert len(before[kind]) == 1, before
    for _ in range(20):
        assert keeper.up()["changed"] == []
    assert seen(keeper) == before
    keeper.assert_kept()


def test_an_upgrade_takes_the_workloads_along(keeper):
    """The health gate asks the gateway's own API, and its certificates are the same afterwards."""
    secrets, pod = objects(keeper, "secrets"), keeper.get("pod", "keeper")["metadata"]["uid"]
    with NodeImages() as images:
        other = images.make("other")
        result = keeper.holdfast.json("upgrade", keeper.name, "--image", other)
        assert result["upgraded_to"]
        assert keeper.inspect()["Image"] == images.id_of(other)
        after = objects(keeper, "secrets")
        assert {key: after.get(key) for key in secrets} == secrets
        assert keeper.get("pod", "keeper")["metadata"]["uid"] == pod
        keeper.assert_kept()
        (api,) = [
            one for (_, name), one in objects(keeper, "deployments", about=lambda one: one).items()
            if name == "holdfast-api"
        ]  # fmt: skip
        assert api["status"]["readyReplicas"] == 1
        # An upgrade that is finished is forgotten: the next `up` proves once more that pods run.
        assert [keeper.up()["changed"] for _ in range(2)] == [["run-probe"], []]

        dies = images.make("dies", entrypoint=["/bin/sh", "-c", "echo no luck; exit 1"])
        ended = keeper.holdfast.run("upgrade", keeper.name, "--image", dies, "--json")
        told = json.loads(ended.stderr.splitlines()[-1])
        assert (ended.returncode, told["code"]) == (3, "upgrade-rolled-back"), ended.stderr
        assert keeper.inspect()["Image"] == images.id_of(other)
        keeper.assert_kept()
        assert [keeper.up()["changed"] for _ in range(2)] == [["run-probe"], []]
        keeper.destroy()
