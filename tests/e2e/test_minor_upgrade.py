"""A real minor upgrade, from Kubernetes 1.33 with etcd 3.5 to 1.34 with etcd 3.6, and a way back from it."""

import json

import pytest
from tests.support.commands import Holdfast
from tests.support.gateways import claim, pod
from tests.support.node_images import NodeImages

from holdfast.images.build import build_images

pytestmark = [pytest.mark.engine, pytest.mark.slow]


@pytest.fixture(scope="module")
def older_image():
    (built,) = build_images(("node",), kubernetes="1.33")
    return built.reference


@pytest.fixture(scope="module")
def keeper(new_gateway, tmp_path_factory, older_image):
    """A gateway of the older version with a pod that has written a file into its volume."""
    home = Holdfast(tmp_path_factory.mktemp("home"), HOLDFAST_WORKLOADS="false")
    made = new_gateway("minor", holdfast=home)
    made.up("--image", older_image)
    made.apply(claim("work"), pod("keeper", claim="work"))
    made.wait_ready("keeper")
    made.execute("keeper", "sh", "-c", "head -c 300000 /dev/urandom > /data/blob && sync")
    made.checksum = made.execute("keeper", "sha256sum", "/data/blob")
    return made


def version_of(gateway):
    (node,) = gateway.get("nodes")["items"]
    return node["status"]["nodeInfo"]["kubeletVersion"]


def assert_kept(gateway):
    gateway.wait_ready("keeper")
    assert gateway.execute("keeper", "sha256sum", "/data/blob") == gateway.checksum


def test_a_newer_version_that_breaks_after_it_opened_the_datastore_is_taken_back(keeper):
    """Its etcd has made the datastore its own by then: only the snapshot leads back."""
    with NodeImages() as images:
        image = images.make("broken", programs={"/usr/bin/kubelet": "#!/bin/sh\nexec sleep 3600\n"})
        ended = keeper.holdfast.run("upgrade", keeper.name, "--image", image, "--timeout", "45", "--json")
    told = json.loads(ended.stderr.splitlines()[-1])
    assert (ended.returncode, told["code"]) == (3, "upgrade-rolled-back"), ended.stderr
    assert "kube-apiserver ready" in told["error"]
    assert version_of(keeper).startswith("v1.33.")
    assert_kept(keeper)


def test_the_next_minor_version_takes_over_with_pods_and_data(keeper):
    result = keeper.holdfast.json("upgrade", keeper.name)
    assert (result["upgraded_from"][:6], result["upgraded_to"][:6]) == ("v1.33.", "v1.34.")
    assert version_of(keeper) == result["upgraded_to"]
    assert_kept(keeper)


def test_there_is_no_way_back_without_a_snapshot(keeper, older_image):
    ended = keeper.holdfast.run("upgrade", keeper.name, "--image", older_image, "--json")
    told = json.loads(ended.stderr.splitlines()[-1])
    assert (ended.returncode, told["code"]) == (3, "image-unfit")
    assert_kept(keeper)
