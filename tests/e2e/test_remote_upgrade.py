"""Another image for a gateway on another host, and images for its pods: by ssh, also when that is cut."""

import json
import os
import uuid

import pytest
from tests.support.gateways import TestGateway
from tests.support.moments import act_at
from tests.support.node_images import NodeImages
from tests.support.remote_host import RemoteHost

from holdfast.containers.commands import run_in

pytestmark = [
    pytest.mark.engine,
    pytest.mark.slow,
    pytest.mark.skipif(os.geteuid() != 0, reason="a host of one's own needs root"),
]

NAME = "far-upgrade"
CUT = "the connection to far was cut; it is made anew"


@pytest.fixture(scope="module")
def host():
    with RemoteHost() as made:
        made.load_node_image()
        yield made


@pytest.fixture(scope="module")
def keeper(host, tmp_path_factory):
    """A gateway over there, with a pod that has written a file into its workspace."""
    laptop = host.laptop(tmp_path_factory.mktemp("one"))
    made = TestGateway(NAME, laptop)
    made.up("--remote", "far")
    yield made.keep_a_file()
    made.destroy()


@pytest.fixture(scope="module")
def images():
    """Node images that only this machine's engine has."""
    with NodeImages() as made:
        yield made


def image_there(host):
    return host.inspect(f"holdfast-{NAME}")["Image"]


def names_in(host):
    listed = run_in(host.connect(), f"holdfast-{NAME}", ["ctr", "-n", "k8s.io", "images", "ls", "-q"])
    assert listed.exit_code == 0
    return listed.output


@pytest.mark.parametrize("step", ["stop-old-node", "put-aside", "wait-node-ready"])
def test_an_upgrade_ends_well_although_the_connection_was_cut(host, keeper, images, step):
    image = images.make(f"cut-{step}")
    code, told = act_at(keeper.holdfast, step, host.cut, "upgrade", NAME, "--image", image)
    assert "Traceback" not in told
    assert code == 0, told
    assert CUT in told
    assert image_there(host) == images.id_of(image)
    keeper.assert_kept()


def test_an_image_that_does_not_work_is_taken_back_over_there_too(host, keeper, images):
    before = image_there(host)
    dies = images.make("dies", entrypoint=["/bin/sh", "-c", "echo no luck; exit 1"])
    ended = keeper.holdfast.run("upgrade", NAME, "--image", dies)
    assert ended.returncode == 3, ended.stderr
    assert "[upgrade-rolled-back]" in ended.stderr
    assert "no luck" in ended.stderr
    assert image_there(host) == before
    keeper.assert_kept()


def test_a_push_ends_well_although_the_connection_was_cut(host, keeper, small_images):
    image = small_images.make([{"blob": os.urandom(60 << 20)}], name=f"hf-far-{uuid.uuid4().hex[:6]}:dev")
    words = ("image", "push", image, "--gateway", NAME)
    running = keeper.holdfast.start(*words, "--json")
    for line in running.stderr:
        if (json.loads(line).get("fraction") or 0) > 0:  # some of it is on its way, the rest is not
            assert host.cut() >= 1
            break
    else:
        pytest.fail("nothing was sent")
    _, told = running.communicate(timeout=240)
    assert "Traceback" not in told
    assert running.returncode == 0, told
    assert CUT in told
    assert image in names_in(host)
    assert "pushed" not in keeper.holdfast.json(*words)
