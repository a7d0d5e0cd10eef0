"""A full disk under the gateway's data: the test sets the size of a real volume."""

import json
import os
import re
import shutil
import signal
import subprocess

import pytest
from tests.support.holdfast_cli import HoldfastCli
from tests.support.node_images import NodeImages

from holdfast.containers import GATEWAY
from holdfast.remote import connect

pytestmark = [
    pytest.mark.engine,
    # Waits for minutes: the kubelet checks the disk periodically.
    pytest.mark.slow,
    pytest.mark.skipif(os.geteuid() != 0, reason="only root can change the size of a mount"),
]

MEGABYTE = 1 << 20


class SmallDisk:
    """A volume in memory, created before its gateway."""

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


def assert_refused(ended, words):
    last = json.loads(ended.stderr.splitlines()[-1])
    assert (ended.returncode, last["code"]) == (3, "disk-full"), ended.stderr
    assert words in last["error"]


def test_full_disk_is_reported_and_rerun_continues(new_gateway, holdfast, small_images):
    impatient = HoldfastCli(
        holdfast.home,
        HOLDFAST_WORKLOADS="false",
        HOLDFAST_TIMEOUTS_NODE_READY="35",
        HOLDFAST_TIMEOUTS_PROBE="20",
    )
    gateway = new_gateway("full", holdfast=HoldfastCli(holdfast.home, HOLDFAST_WORKLOADS="false"))
    disk = SmallDisk(gateway)
    assert_refused(impatient.run("up", gateway.name, "--json"), "no space left on the engine's host")
    disk.resize(1500 * MEGABYTE)
    restart_kubelet(gateway)
    gateway.up()

    image = small_images.build([{"big": os.urandom(40 * MEGABYTE)}])
    disk.leave(20 * MEGABYTE)
    assert_refused(
        gateway.holdfast.run("image", "push", image, "--gateway", gateway.name, "--json"), "no space left"
    )
    before = gateway.inspect()
    with NodeImages() as images:
        ended = gateway.holdfast.run("upgrade", gateway.name, "--image", images.build("full"), "--json")
    assert_refused(ended, "nothing was changed")
    after = gateway.inspect()
    assert (before["Id"], before["State"]["StartedAt"]) == (after["Id"], after["State"]["StartedAt"])
    assert_disk_pressure_reported(gateway, impatient)
    disk.resize(1500 * MEGABYTE)
    gateway.holdfast("image", "push", image, "--gateway", gateway.name)
    restart_kubelet(gateway)
    gateway.up()
    assert gateway.up()["changed"] == []
    gateway.destroy()


def assert_disk_pressure_reported(gateway, impatient):
    """`up` reports DiskPressure of a node that was ready before."""
    gateway.kubectl("wait", "--for=condition=DiskPressure", f"node/{gateway.container}", "--timeout=90s")
    assert_refused(
        impatient.run("up", gateway.name, "--json"), "Kubernetes starts no pod (DiskPressure since"
    )


def restart_kubelet(gateway):
    """Kill the kubelet: a new one checks the disk immediately, the old one only after five minutes.

    A user would run `restart`, but a volume in memory does not survive that.
    """
    listed = connect().client.top(gateway.container, ps_args="-eo pid,args")
    for pid, words in listed["Processes"]:
        if re.match(r"\S*kubelet\b", words):
            os.kill(int(pid), signal.SIGKILL)
