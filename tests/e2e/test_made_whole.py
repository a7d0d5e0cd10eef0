"""What goes missing or changes under a gateway: `up` puts it right, and the data is mounted again."""

import os

import pytest
from tests.support.commands import Holdfast
from tests.support.node_images import NodeImages

from holdfast.containers.engine import connect
from holdfast.containers.labels import GATEWAY

pytestmark = pytest.mark.engine

OTHER_HOST = ("unshare", "--uts", "sh", "-c", 'hostname renamed-since && exec "$@"', "sh")
"""In front of a command: this machine under another host name, for that command alone."""


@pytest.fixture(scope="module")
def images():
    with NodeImages() as made:
        yield made


@pytest.fixture(scope="module")
def keeper(new_gateway, images):
    """A gateway of an image that a test may move, with a pod that has written a file into its workspace."""
    made = new_gateway("whole")
    made.image = images.make("moves")
    made.up("--image", made.image)
    return made.keep_a_file()


def parts(gateway):
    """The ids of what the engine has of the gateway: just one of each."""
    client = connect().client
    ours = {"label": f"{GATEWAY}={gateway.name}"}
    (container,) = client.containers(all=True, filters=ours)
    (network,) = client.networks(filters=ours)
    (volume,) = client.volumes(filters=ours)["Volumes"]
    return container["Id"], network["Id"], volume["Name"]


def test_container_and_network_are_both_made_again_around_the_volume(keeper):
    before, client = parts(keeper), connect().client
    client.remove_container(keeper.container, force=True)
    client.remove_network(keeper.container)
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
@pytest.mark.skipif(os.geteuid() != 0, reason="a host name of one's own needs root")
def test_a_node_that_starts_under_another_host_name_is_the_same_node(keeper):
    renamed = Holdfast(keeper.holdfast.home, prefix=OTHER_HOST, HOLDFAST_WORKLOADS="false")
    renamed("restart", keeper.name)
    keeper.assert_kept()
    renamed("up", keeper.name, "--recreate")
    keeper.assert_kept()


@pytest.mark.slow
def test_a_tag_that_means_another_image_by_now_is_taken_only_when_asked_for(keeper, images):
    """Nobody asked for another version: not even a container that is made anew gets one by accident."""
    before = keeper.inspect()["Image"]
    images.make("moves")
    moved = images.id_of(keeper.image)
    assert moved != before
    assert keeper.up()["changed"] == []
    keeper.up("--recreate")
    assert keeper.inspect()["Image"] == before
    assert keeper.up("--image", keeper.image)["upgraded_to"]
    assert keeper.inspect()["Image"] == moved
    keeper.assert_kept()
    images.remove(before)
