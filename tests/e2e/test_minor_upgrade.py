"""A real minor upgrade, from Kubernetes 1.33 with etcd 3.5 to 1.34 with etcd 3.6, and a way back from it."""

import json

import pytest
from tests.support.gateway import pod_manifest, pvc_manifest
from tests.support.holdfast_cli import HoldfastCli
from tests.support.node_images import NodeImages

from holdfast.images import build_images

pytestmark = [pytest.mark.engine, pytest.mark.slow]


@pytest.fixture(scope="module")
def older_image():
    (built,) = build_images(("node",), kubernetes="1.33")
    return built.reference


@pytest.fixture(scope="module")
def gateway(new_gateway, tmp_path_factory, older_image):
    """A gateway of the older version with a pod that has written a file into its volume."""
    home = HoldfastCli(tmp_path_factory.mktemp("home"), HOLDFAST_WORKLOADS="false")
    made = new_gateway("minor", holdfast=home)
    made.up("--image", older_image)
    made.apply(pvc_manifest("work"), pod_manifest("keeper", claim="work"))
    made.wait_ready("keeper")
    made.exec_in_pod("keeper", "sh", "-c", "head -c 300000 /dev/urandom > /data/blob && sync")
    made.checksum = made.exec_in_pod("keeper", "sha256sum", "/data/blob")
    return made


def version_of(gateway):
    (node,) = gateway.get("nodes")["items"]
    return node["status"]["nodeInfo"]["kubeletVersion"]


def assert_data_intact(gateway):
    gateway.wait_ready("keeper")
    assert gateway.exec_in_pod("keeper", "sha256sum", "/data/blob") == gateway.checksum


def test_failed_minor_upgrade_is_rolled_back_after_datastore_was_opened(gateway):
    """Its etcd has made the datastore its own by then: only the snapshot leads back."""
    with NodeImages() as images:
        image = images.build("broken", programs={"/usr/bin/kubelet": "#!/bin/sh\nexec sleep 3600\n"})
        ended = gateway.holdfast.run("upgrade", gateway.name, "--image", image, "--timeout", "45", "--json")
    told = json.loads(ended.stderr.splitlines()[-1])
    assert (ended.returncode, told["code"]) == (3, "upgrade-rolled-back"), ended.stderr
    assert "kube-apiserver ready" in told["error"]
    assert version_of(gateway).startswith("v1.33.")
    assert_data_intact(gateway)


def test_next_minor_version_keeps_pods_and_data(gateway):
    result = gateway.holdfast.json("upgrade", gateway.name)
    assert (result["upgraded_from"][:6], result["upgraded_to"][:6]) == ("v1.33.", "v1.34.")
    assert version_of(gateway) == result["upgraded_to"]
    assert_data_intact(gateway)


def test_downgrade_without_snapshot_is_refused(gateway, older_image):
    ended = gateway.holdfast.run("upgrade", gateway.name, "--image", older_image, "--json")
    told = json.loads(ended.stderr.splitlines()[-1])
    assert (ended.returncode, told["code"]) == (3, "image-unfit")
    assert_data_intact(gateway)
