"""One sandbox and its files go through everything that can happen to what is below them, in rounds.

All on one gateway with its own workloads, on an engine of the test's own, which may be killed too.
"""

from __future__ import annotations

import os
import signal
import time

import pytest
from tests.support.commands import Holdfast
from tests.support.gateways import TestGateway
from tests.support.node_images import NodeImages
from tests.support.private_engine import PrivateEngine
from tests.support.seeded_image import SeededImage
from tests.support.survival import (
    SANDBOX,
    Keeper,
    Seeding,
    Table,
    container_id,
    is_ready,
    killed_in_node,
    wait_node_healthy,
)

pytestmark = [
    pytest.mark.engine,
    pytest.mark.timeout(600),
    pytest.mark.skipif(os.geteuid() != 0, reason="an engine and a network namespace of one's own need root"),
]

ROUNDS = [1, *(pytest.param(number, marks=pytest.mark.slow) for number in range(2, 6))]


@pytest.fixture(scope="module")
def table(request):
    made = Table()
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
    with PrivateEngine() as made:
        yield made


@pytest.fixture(scope="module")
def gateway(engine, tmp_path_factory):
    builder = Holdfast(tmp_path_factory.mktemp("none"), prefix=engine.prefix, DOCKER_HOST=engine.socket)
    del builder.environment["HOLDFAST_HOME"]
    builder("image", "build")
    command = Holdfast(tmp_path_factory.mktemp("home"), prefix=engine.prefix, DOCKER_HOST=engine.socket)
    made = TestGateway("survives", command)
    made.up("--push-image", SANDBOX)
    yield made
    made.take_away(engine.connect())


@pytest.fixture(scope="module")
def other_image(engine):
    with NodeImages(engine.connect()) as images:
        yield images.make("other")


@pytest.fixture(scope="module")
def keeper(gateway, engine):
    made = Keeper(gateway, engine)
    made.command("create", "--no-bootstrap")
    made.plant()
    return made


def uid(pod):
    return pod["metadata"]["uid"]


def delete_the_pod(keeper):
    old = uid(keeper.pod())
    keeper.gateway.kubectl("delete", "pod", keeper.name, "--wait=false")
    keeper.wait_pod(lambda pod: uid(pod) != old and is_ready(pod))


def fail_the_pod(keeper):
    """The kubelet itself ends a pod whose time is over, and calls it Failed, whatever its restartPolicy."""
    old = uid(keeper.pod())
    patch = ("patch", "pod", keeper.name, "-p", '{"spec":{"activeDeadlineSeconds":1}}')
    failed = keeper.wait_pod(
        lambda pod: uid(pod) == old and pod["status"]["phase"] == "Failed",
        act=lambda: keeper.gateway.kubectl(*patch),
    )
    assert failed["status"]["reason"] == "DeadlineExceeded"
    keeper.wait_pod(lambda pod: uid(pod) != old and is_ready(pod))


def suspend_and_resume(keeper):
    old = uid(keeper.pod())
    keeper.command("suspend")
    keeper.command("wait", "--for", "suspended")
    assert keeper.gateway.get("pods")["items"] == []
    keeper.command("resume")
    keeper.wait_pod(lambda pod: uid(pod) != old and is_ready(pod))


class _Restarted:
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
    with _Restarted(keeper):
        keeper.gateway.holdfast("stop", keeper.gateway.name)
        keeper.gateway.holdfast("start", keeper.gateway.name)


def remove_the_container(keeper):
    client, name = keeper.engine.connect().client, keeper.gateway.container
    before = keeper.engine.inspect(name)["Id"]
    with _Restarted(keeper):
        client.remove_container(name, force=True)
        keeper.gateway.up()
    assert keeper.engine.inspect(name)["Id"] != before


def remove_the_network(keeper):
    """A node that gets another address boots again by itself: only after that it is over."""
    client, name = keeper.engine.connect().client, keeper.gateway.container
    before, old = client.inspect_network(name)["Id"], address_of(keeper)
    restarted = _Restarted(keeper)
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
    with _Restarted(keeper):
        keeper.gateway.holdfast("upgrade", keeper.gateway.name, "--image", goal)
    after = keeper.engine.inspect(keeper.gateway.container)["Image"]
    assert after == client.inspect_image(goal)["Id"] != before


def kill_component(words):
    def kill(keeper):
        with killed_in_node(keeper.engine, keeper.gateway.container, words):
            pass
        wait_node_healthy(keeper.engine, keeper.gateway.container)

    return kill


def kill_the_controller(keeper):
    """While it is dead the pod is deleted: it must notice, and bring it back."""
    old, words = uid(keeper.pod()), "/usr/bin/python3 -m holdfast.cli controller run"
    with killed_in_node(keeper.engine, keeper.gateway.container, words):
        keeper.gateway.kubectl("delete", "pod", keeper.name, "--wait=false")
    keeper.wait_pod(lambda pod: uid(pod) != old and is_ready(pod))


def kill_the_engine(keeper):
    """Its container comes back by itself, and everything in it: no command is needed."""
    before = keeper.engine.pid
    with _Restarted(keeper):
        keeper.engine.stop(signal.SIGKILL)
        keeper.engine.start()
        assert keeper.engine.pid != before


HARMS = {
    "pod deleted": delete_the_pod,
    "pod Failed": fail_the_pod,
    "suspend and resume": suspend_and_resume,
    "gateway stop and start": stop_and_start,
    "container removed, made again": remove_the_container,
    "network removed, made again": remove_the_network,
    "upgrade": upgrade,
    "SIGKILL of containerd": kill_component("/usr/bin/containerd --config"),
    "SIGKILL of the kubelet": kill_component("/usr/bin/kubelet"),
    "SIGKILL of etcd": kill_component("/usr/bin/etcd"),
    "SIGKILL of the controller": kill_the_controller,
    "SIGKILL of the engine": kill_the_engine,
}


@pytest.mark.parametrize("harm", HARMS)
@pytest.mark.parametrize("number", ROUNDS)
def test_every_file_is_as_it_was(keeper, other_image, table, number, harm):
    keeper.write_one_more(f"before {harm} {number}")
    table.begin(harm)
    began = time.monotonic()
    HARMS[harm](keeper, other_image) if harm == "upgrade" else HARMS[harm](keeper)
    keeper.wait_ready()
    seconds = time.monotonic() - began
    assert keeper.picture() == keeper.known
    table.survived(harm, seconds)


FILES = 1000
LISTING = "cd /sandbox && find . -type f -print0 | sort -z | xargs -0 sha256sum"
RESTS = "trap 'exit 0' TERM; tail -f /dev/null & wait"


@pytest.fixture(scope="module")
def seeded(gateway, engine):
    made = SeededImage(engine.connect(), files=FILES)
    gateway.holdfast("image", "push", made.name, "--gateway", gateway.name)
    yield made
    made.remove()


def kill_the_seeding(seeding):
    seeding.kill()


def delete_its_pod_by_force(seeding):
    box = seeding.keeper
    old = uid(box.pod())
    box.gateway.kubectl("delete", "pod", box.name, "--force", "--grace-period=0")
    box.wait_pod(lambda pod: uid(pod) != old)


def kill_the_node(seeding):
    """Its first process, and so everything in it; the engine starts it again."""
    box = seeding.keeper
    before = box.engine.inspect(box.gateway.container)["State"]
    os.kill(before["Pid"], signal.SIGKILL)
    box.engine.wait_started_again(box.gateway.container, before["StartedAt"])


SEEDING_ENDS = {
    "seeding killed": kill_the_seeding,
    "seeding's pod deleted by force": delete_its_pod_by_force,
    "node killed while seeding": kill_the_node,
}


@pytest.mark.parametrize("end", SEEDING_ENDS)
@pytest.mark.parametrize(
    "files", [FILES // 2, *(pytest.param(n, marks=pytest.mark.slow) for n in (1, 250, 750, 900))]
)
def test_a_seeding_that_ends_in_the_middle_is_never_taken_for_a_whole_one(
    gateway, engine, seeded, table, files, end
):
    box = Keeper(gateway, engine, f"seeds-{files}-{list(SEEDING_ENDS).index(end)}")
    # So little of a processor makes the copy last long enough to be met in the middle.
    box.command(
        "create", "--image", seeded.name, "--cpu", "40m", "--command", f'sh -c "{RESTS}"',
        "--no-wait", "--no-bootstrap",
    )  # fmt: skip
    seeding = Seeding(box)
    assert files <= seeding.hold(files) < FILES
    table.begin(end)
    began = time.monotonic()
    SEEDING_ENDS[end](seeding)
    box.wait_pod(is_ready)
    seconds = time.monotonic() - began
    assert box.command("exec", "--", "sh", "-c", LISTING) == seeded.listing()
    table.survived(end, seconds)
    box.command("delete", "--yes")
