"""A full disk under the gateway's data, in real: a volume whose size the test decides."""

import json
import os
import shutil
import subprocess

import pytest
from tests.support.commands import Holdfast
from tests.support.node_images import NodeImages

from holdfast.containers.engine import connect
from holdfast.containers.labels import GATEWAY

pytestmark = [
    pytest.mark.engine,
    # The kubelet may call a disk full for minutes after it was: an `up` in that time ends with a wait.
    pytest.mark.slow,
    pytest.mark.skipif(os.geteuid() != 0, reason="only root can change the size of a mount"),
]

MEGABYTE = 1 << 20


class SmallDisk:
    """A gateway's volume in memory, made before the gateway itself."""

    def __init__(self, gateway):
        self.name = gateway.container
        connect().client.create_volume(
            self.name,
            driver="local",
            driver_opts={"type": "tmpfs", "device": "tmpfs", "o": f"size={100 * MEGABYTE}"},
            labels={GATEWAY: gateway.name},
        )
        self.path = connect().client.inspect_volume(self.name)["Mountpoint"]

    def resize(self, size):
        subprocess.run(["mount", "-o", f"remount,size={size}", self.path], check=True)

    def leave(self, free):
        self.resize(shutil.disk_usage(self.path).used + free)


def refused(ended, words):
    last = json.loads(ended.stderr.splitlines()[-1])
    assert (ended.returncode, last["code"]) == (3, "disk-full"), ended.stderr
    assert words in last["error"]


def test_a_full_disk_is_told_and_the_same_command_goes_on(new_gateway, holdfast, small_images):
    impatient = Holdfast(holdfast.home, HOLDFAST_WORKLOADS="false", HOLDFAST_TIMEOUTS_NODE_READY="35")
    gateway = new_gateway("full", holdfast=Holdfast(holdfast.home, HOLDFAST_WORKLOADS="false"))
    disk = SmallDisk(gateway)
    refused(impatient.run("up", gateway.name, "--json"), "no space left on the engine's host")
    disk.resize(1500 * MEGABYTE)
    gateway.up()

    image = small_images.make([{"big": os.urandom(40 * MEGABYTE)}])
    disk.leave(20 * MEGABYTE)
    refused(
        gateway.holdfast.run("image", "push", image, "--gateway", gateway.name, "--json"), "no space left"
    )
    before = gateway.inspect()
    with NodeImages() as images:
        ended = gateway.holdfast.run("upgrade", gateway.name, "--image", images.make("full"), "--json")
    refused(ended, "nothing was changed")
    after = gateway.inspect()
    assert (before["Id"], before["State"]["StartedAt"]) == (after["Id"], after["State"]["StartedAt"])
    disk.resize(1500 * MEGABYTE)
    gateway.holdfast("image", "push", image, "--gateway", gateway.name)
    gateway.destroy()
