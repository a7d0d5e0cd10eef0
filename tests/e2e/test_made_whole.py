"""What changes around a gateway: `up` puts it right or leaves it alone, and the data is mounted again."""

import os

import pytest
from tests.support.commands import OTHER_HOST, Holdfast
from tests.support.node_images import NodeImages

pytestmark = [pytest.mark.engine, pytest.mark.slow]


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


@pytest.mark.skipif(os.geteuid() != 0, reason="a host name of one's own needs root")
def test_a_node_that_starts_under_another_host_name_is_the_same_node(keeper):
    renamed = Holdfast(keeper.holdfast.home, prefix=OTHER_HOST, HOLDFAST_WORKLOADS="false")
    renamed("restart", keeper.name)
    keeper.assert_kept()
    renamed("up", keeper.name, "--recreate")
    keeper.assert_kept()


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
