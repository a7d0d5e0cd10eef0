"""What changes around a gateway: `up` puts it right or leaves it alone, and the data is mounted again."""

import os

import pytest
from tests.support.holdfast_cli import OTHER_HOSTNAME_PREFIX, HoldfastCli
from tests.support.node_images import NodeImages

pytestmark = [pytest.mark.engine, pytest.mark.slow]


@pytest.fixture(scope="module")
def images():
    with NodeImages() as made:
        yield made


@pytest.fixture(scope="module")
def gateway(new_gateway, images):
    """A gateway of an image that a test may move, with a pod that has written a file into its workspace."""
    made = new_gateway("whole")
    made.image = images.build("moves")
    made.up("--image", made.image)
    return made.write_test_file()


@pytest.mark.skipif(os.geteuid() != 0, reason="a host name of one's own needs root")
def test_node_name_is_stable_across_host_names(gateway):
    renamed = HoldfastCli(gateway.holdfast.home, prefix=OTHER_HOSTNAME_PREFIX, HOLDFAST_WORKLOADS="false")
    renamed("restart", gateway.name)
    gateway.assert_test_file_intact()
    renamed("up", gateway.name, "--recreate")
    gateway.assert_test_file_intact()


def test_moved_image_tag_is_used_only_on_request(gateway, images):
    """The user requested no other version: a recreated container keeps its version, too."""
    before = gateway.inspect()["Image"]
    images.build("moves")
    moved = images.id_of(gateway.image)
    assert moved != before
    assert gateway.up()["changed"] == []
    gateway.up("--recreate")
    assert gateway.inspect()["Image"] == before
    assert gateway.up("--image", gateway.image)["upgraded_to"]
    assert gateway.inspect()["Image"] == moved
    gateway.assert_test_file_intact()
    images.remove(before)
