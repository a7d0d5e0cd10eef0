"""Another image for a gateway on another host, and images for its pods: by ssh, also when that is cut."""

import json
import os
import uuid

import pytest
from tests.support.gateway import TestGateway
from tests.support.node_images import NodeImages
from tests.support.ssh_host import SshHost
from tests.support.step_interruption import run_and_act_at

from holdfast.containers import run_in_container

pytestmark = [
    pytest.mark.engine,
    pytest.mark.slow,
    pytest.mark.skipif(os.geteuid() != 0, reason="a host of one's own needs root"),
]

NAME = "far-upgrade"
RECONNECT_MESSAGE = "lost the connection to far; reconnecting"


@pytest.fixture(scope="module")
def host():
    with SshHost() as made:
        made.load_node_image()
        yield made


@pytest.fixture(scope="module")
def gateway(host, tmp_path_factory):
    """A remote gateway with a pod that has written a file into its workspace."""
    laptop = host.laptop(tmp_path_factory.mktemp("one"))
    made = TestGateway(NAME, laptop)
    made.up("--remote", "far")
    yield made.write_test_file()
    made.destroy()


@pytest.fixture(scope="module")
def images():
    """Node images that only this machine's engine has."""
    with NodeImages() as made:
        yield made


def remote_image(host):
    return host.inspect(f"holdfast-{NAME}")["Image"]


def image_names_in_node(host):
    listed = run_in_container(
        host.connect(), f"holdfast-{NAME}", ["ctr", "-n", "k8s.io", "images", "ls", "-q"]
    )
    assert listed.exit_code == 0
    return listed.output


@pytest.mark.parametrize("step", ["stop-old-node", "put-aside", "wait-node-ready"])
def test_upgrade_succeeds_after_connection_was_cut(host, gateway, images, step):
    image = images.build(f"cut-{step}")
    code, told = run_and_act_at(
        gateway.holdfast, step, host.kill_ssh_sessions, "upgrade", NAME, "--image", image
    )
    assert "Traceback" not in told
    assert code == 0, told
    assert RECONNECT_MESSAGE in told
    assert remote_image(host) == images.id_of(image)
    gateway.assert_test_file_intact()


def test_broken_image_is_rolled_back_on_remote_host(host, gateway, images):
    before = remote_image(host)
    dies = images.build("dies", entrypoint=["/bin/sh", "-c", "echo no luck; exit 1"])
    ended = gateway.holdfast.run("upgrade", NAME, "--image", dies)
    assert ended.returncode == 3, ended.stderr
    assert "[upgrade-rolled-back]" in ended.stderr
    assert "no luck" in ended.stderr
    assert remote_image(host) == before
    gateway.assert_test_file_intact()


def test_push_succeeds_after_connection_was_cut(host, gateway, small_images):
    image = small_images.build([{"blob": os.urandom(60 << 20)}], name=f"hf-far-{uuid.uuid4().hex[:6]}:dev")
    words = ("image", "push", image, "--gateway", NAME)
    running = gateway.holdfast.start(*words, "--json")
    for line in running.stderr:
        if (json.loads(line).get("fraction") or 0) > 0:  # the transfer has started and is not finished
            assert host.kill_ssh_sessions() >= 1
            break
    else:
        pytest.fail("nothing was sent")
    _, told = running.communicate(timeout=240)
    assert "Traceback" not in told
    assert running.returncode == 0, told
    assert RECONNECT_MESSAGE in told
    assert image in image_names_in_node(host)
    assert "pushed" not in gateway.holdfast.json(*words)
