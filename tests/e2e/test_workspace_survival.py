"""One sandbox and its files go through everything that can happen to what is below them, in rounds.

All on one gateway with its own workloads, on an engine of the test's own, which may be killed too.
"""

from __future__ import annotations

import os
import signal
import time

import pytest
from tests.support.gateway import TestGateway
from tests.support.holdfast_cli import HoldfastCli
from tests.support.node_images import NodeImages
from tests.support.private_container_engine import PrivateContainerEngine
from tests.support.seeded_image import SeededImage
from tests.support.workspace_integrity import (
    SANDBOX_IMAGE,
    FaultTable,
    PausedSeeding,
    WorkspaceSandbox,
    container_id,
    is_ready,
    kill_process_in_node,
    wait_node_healthy,
)

pytestmark = [
    pytest.mark.engine,
    pytest.mark.timeout(600),
    pytest.mark.skipif(os.geteuid() != 0, reason="an engine and a network namespace of one's own need root"),
]

ROUNDS = [1, *(pytest.param(number, marks=pytest.mark.slow) for number in range(2, 6))]


@pytest.fixture(scope="module")
def fault_table(request):
    made = FaultTable()
    yield made
    plugins = request.config.pluginmanager
    reporter = plugins.get_plugin("terminalreporter")
    with plugins.get_plugin("capturemanager").global_and_fixture_disabled():
        reporter.ensure_newline()
        reporter.section("what the workspace survived")
        for line in made.lines():
            reporter.write_line(line)


@pytest.fixture(scope="module")
def engine():
    with PrivateContainerEngine() as made:
        yield made


@pytest.fixture(scope="module")
def gateway(engine, tmp_path_factory):
    builder = HoldfastCli(tmp_path_factory.mktemp("none"), prefix=engine.prefix, DOCKER_HOST=engine.socket)
    del builder.environment["HOLDFAST_HOME"]
    builder("image", "build")
    command = HoldfastCli(tmp_path_factory.mktemp("home"), prefix=engine.prefix, DOCKER_HOST=engine.socket)
    made = TestGateway("survives", command)
    made.up("--push-image", SANDBOX_IMAGE)
    yield made
    made.force_destroy(engine.connect())


@pytest.fixture(scope="module")
def other_image(engine):
    with NodeImages(engine.connect()) as images:
        yield images.build("other")


@pytest.fixture(scope="module")
def workspace_sandbox(gateway, engine):
    made = WorkspaceSandbox(gateway, engine)
    made.sandbox_command("create", "--no-bootstrap")
    made.write_tree()
    return made


def pod_uid(pod):
    return pod["metadata"]["uid"]


def delete_pod(keeper):
    old = pod_uid(keeper.pod())
    keeper.gateway.kubectl("delete", "pod", keeper.name, "--wait=false")
    keeper.wait_pod(lambda pod: pod_uid(pod) != old and is_ready(pod))


def fail_pod(keeper):
    """The kubelet itself ends a pod whose time is over, and calls it Failed, whatever its restartPolicy."""
    old = pod_uid(keeper.pod())
    patch = ("patch", "pod", keeper.name, "-p", '{"spec":{"activeDeadlineSeconds":1}}')
    failed = keeper.wait_pod(
        lambda pod: pod_uid(pod) == old and pod["status"]["phase"] == "Failed",
        act=lambda: keeper.gateway.kubectl(*patch),
    )
    assert failed["status"]["reason"] == "DeadlineExceeded"
    keeper.wait_pod(lambda pod: pod_uid(pod) != old and is_ready(pod))


def suspend_and_resume(keeper):
    old = pod_uid(keeper.pod())
    keeper.sandbox_command("suspend")
    keeper.sandbox_command("wait", "--for", "suspended")
    assert keeper.gateway.get("pods")["items"] == []
    keeper.sandbox_command("resume")
    keeper.wait_pod(lambda pod: pod_uid(pod) != old and is_ready(pod))


class _NodeRestart:
    """The pod's container is another one afterwards: what was under it was really gone."""

    def __init__(self, keeper):
        self.keeper, self.before = keeper, container_id(keeper.pod())

    def __enter__(self):
        assert self.before
        return self

    def __exit__(self, kind, *_):
        if kind is None:
            self.wait()

    def wait(self):
        self.keeper.wait_pod(lambda pod: container_id(pod) not in ("", self.before) and is_ready(pod))


def stop_and_start(keeper):
    with _NodeRestart(keeper):
        keeper.gateway.holdfast("stop", keeper.gateway.name)
        keeper.gateway.holdfast("start", keeper.gateway.name)


def remove_container(keeper):
    client, name = keeper.engine.connect().client, keeper.gateway.container
    before = keeper.engine.inspect(name)["Id"]
    with _NodeRestart(keeper):
        client.remove_container(name, force=True)
        keeper.gateway.up()
    assert keeper.engine.inspect(name)["Id"] != before


def remove_network(keeper):
    """A node with a new address restarts once; wait until that is finished."""
    client, name = keeper.engine.connect().client, keeper.gateway.container
    before, old = client.inspect_network(name)["Id"], address_of(keeper)
    restarted = _NodeRestart(keeper)
    client.disconnect_container_from_network(name, name, force=True)
    client.remove_network(name)
    keeper.gateway.up()
    assert client.inspect_network(name)["Id"] != before
    if address_of(keeper) != old:
        restarted.wait()


def address_of(keeper):
    name = keeper.gateway.container
    return keeper.engine.inspect(name)["NetworkSettings"]["Networks"][name]["IPAddress"]


def upgrade(keeper, other_image):
    """To another image, and in the next round back."""
    default = "holdfast/node:0.1.0"
    client, before = keeper.engine.connect().client, keeper.engine.inspect(keeper.gateway.container)["Image"]
    goal = next(each for each in (other_image, default) if client.inspect_image(each)["Id"] != before)
    with _NodeRestart(keeper):
        keeper.gateway.holdfast("upgrade", keeper.gateway.name, "--image", goal)
    after = keeper.engine.inspect(keeper.gateway.container)["Image"]
    assert after == client.inspect_image(goal)["Id"] != before


def kill_component(words):
    def kill(keeper):
        with kill_process_in_node(keeper.engine, keeper.gateway.container, words):
            pass
        wait_node_healthy(keeper.engine, keeper.gateway.container)

    return kill


def kill_controller(keeper):
    """While it is dead the pod is deleted: it must notice, and bring it back."""
    old, words = pod_uid(keeper.pod()), "/usr/bin/python3 -m holdfast.cli controller run"
    with kill_process_in_node(keeper.engine, keeper.gateway.container, words):
        keeper.gateway.kubectl("delete", "pod", keeper.name, "--wait=false")
    keeper.wait_pod(lambda pod: pod_uid(pod) != old and is_ready(pod))


def kill_engine(keeper):
    """The engine restarts the container and everything in it without a command."""
    before = keeper.engine.pid
    with _NodeRestart(keeper):
        keeper.engine.stop(signal.SIGKILL)
        keeper.engine.start()
        assert keeper.engine.pid != before


FAULTS = {
    "pod deleted": delete_pod,
    "pod Failed": fail_pod,
    "suspend and resume": suspend_and_resume,
    "gateway stop and start": stop_and_start,
    "container removed, made again": remove_container,
    "network removed, made again": remove_network,
    "upgrade": upgrade,
    "SIGKILL of containerd": kill_component("/usr/bin/containerd --config"),
    "SIGKILL of the kubelet": kill_component("/usr/bin/kubelet"),
    "SIGKILL of etcd": kill_component("/usr/bin/etcd"),
    "SIGKILL of the controller": kill_controller,
    "SIGKILL of the engine": kill_engine,
}


@pytest.mark.parametrize("harm", FAULTS)
@pytest.mark.parametrize("number", ROUNDS)
def test_every_file_survives_fault(workspace_sandbox, other_image, fault_table, number, harm):
    workspace_sandbox.add_file(f"before {harm} {number}")
    fault_table.start(harm)
    began = time.monotonic()
    FAULTS[harm](workspace_sandbox, other_image) if harm == "upgrade" else FAULTS[harm](workspace_sandbox)
    workspace_sandbox.wait_ready()
    seconds = time.monotonic() - began
    assert workspace_sandbox.snapshot() == workspace_sandbox.expected
    fault_table.record_success(harm, seconds)


FILES = 1000
LISTING = "cd /sandbox && find . -type f -print0 | sort -z | xargs -0 sha256sum"
SLEEP_COMMAND = "trap 'exit 0' TERM; tail -f /dev/null & wait"


@pytest.fixture(scope="module")
def seeded_image(gateway, engine):
    made = SeededImage(engine.connect(), files=FILES)
    gateway.holdfast("image", "push", made.name, "--gateway", gateway.name)
    yield made
    made.remove()


def kill_seeding(seeding):
    seeding.kill_container()


def force_delete_pod(seeding):
    box = seeding.sandbox
    old = pod_uid(box.pod())
    box.gateway.kubectl("delete", "pod", box.name, "--force", "--grace-period=0")
    box.wait_pod(lambda pod: pod_uid(pod) != old)


def kill_node(seeding):
    """Its first process, and so everything in it; the engine starts it again."""
    box = seeding.sandbox
    before = box.engine.inspect(box.gateway.container)["State"]
    os.kill(before["Pid"], signal.SIGKILL)
    box.engine.wait_restarted(box.gateway.container, before["StartedAt"])


SEEDING_FAULTS = {
    "seeding killed": kill_seeding,
    "seeding's pod deleted by force": force_delete_pod,
    "node killed while seeding": kill_node,
}


@pytest.mark.parametrize("end", SEEDING_FAULTS)
@pytest.mark.parametrize(
    "files", [FILES // 2, *(pytest.param(n, marks=pytest.mark.slow) for n in (1, 250, 750, 900))]
)
def test_interrupted_seeding_is_never_used_as_complete(
    gateway, engine, seeded_image, fault_table, files, end
):
    box = WorkspaceSandbox(gateway, engine, f"seeds-{files}-{list(SEEDING_FAULTS).index(end)}")
    # So little of a processor makes the copy last long enough to be met in the middle.
    box.sandbox_command(
        "create", "--image", seeded_image.name, "--cpu", "40m", "--command", f'sh -c "{SLEEP_COMMAND}"',
        "--no-wait", "--no-bootstrap",
    )  # fmt: skip
    seeding = PausedSeeding(box)
    assert files <= seeding.pause_after(files) < FILES
    fault_table.start(end)
    began = time.monotonic()
    SEEDING_FAULTS[end](seeding)
    box.wait_pod(is_ready)
    seconds = time.monotonic() - began
    assert box.sandbox_command("exec", "--", "sh", "-c", LISTING) == seeded_image.listing()
    fault_table.record_success(end, seconds)
    box.sandbox_command("delete", "--yes")
