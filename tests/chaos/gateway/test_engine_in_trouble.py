"""An engine that is killed, a node whose first process is, an engine without a byte left: commands go on.

All on one engine of the test's own, with one gateway whose workspace must be the same after each of it.
"""

import json
import os
import signal
import subprocess
from itertools import product

import pytest
from tests.support.commands import Holdfast
from tests.support.gateways import TestGateway
from tests.support.moments import FINISHED, STARTED, act_at
from tests.support.node_images import NodeImages
from tests.support.small_disk import SmallDiskEngine

from holdfast.containers.labels import GATEWAY

pytestmark = [
    pytest.mark.engine,
    pytest.mark.skipif(os.geteuid() != 0, reason="an engine and a network namespace of one's own need root"),
]

ADDRESS = "10.205.77.1"
"""An address of that network namespace that is not loopback."""


@pytest.fixture(scope="module")
def engine():
    with SmallDiskEngine() as made:
        made.load_node_image()
        subprocess.run([*made.prefix, "ip", "addr", "add", f"{ADDRESS}/32", "dev", "lo"], check=True)
        yield made


@pytest.fixture(scope="module")
def fresh(engine, tmp_path_factory):
    """A gateway that is not there yet, on that engine."""
    home = tmp_path_factory.mktemp("home")
    command = Holdfast(
        home, prefix=engine.prefix, DOCKER_HOST=engine.socket, HOLDFAST_WORKLOADS="false",
        # As long as this a command waits for an engine that does not come back before it has ended.
        HOLDFAST_TIMEOUTS_HEALTH="120",
    )  # fmt: skip
    gateway = TestGateway("trouble", command)
    yield gateway
    gateway.take_away(engine.connect())


@pytest.fixture(scope="module")
def keeper(fresh):
    """The gateway, up, with a pod that has written a file; it listens beyond loopback, as asked."""
    fresh.up("--listen", ADDRESS)
    return fresh.keep_a_file()


@pytest.fixture(scope="module")
def other_image(engine):
    with NodeImages(engine.connect()) as images:
        yield images.make("other")


def ours(engine):
    """How many containers, networks and volumes of holdfast's the engine has."""
    client, filters = engine.connect().client, {"label": GATEWAY}
    return (
        len(client.containers(all=True, filters=filters)),
        len(client.networks(filters=filters)),
        len(client.volumes(filters=filters)["Volumes"] or []),
    )


def killed_and_started_again(engine, keeper, step, *words, moment=STARTED):
    """Kill the engine at a moment of a step; the command ends by itself, whatever it has to say."""
    try:
        code, told = act_at(keeper.holdfast, step, lambda: engine.stop(signal.SIGKILL), *words, moment=moment)
    finally:
        if engine.is_stopped:  # whatever went wrong, the next test needs it
            engine.start()
    assert_no_mess(code, told)


def node_killed(engine, keeper, step, *words, moment=STARTED):
    """Kill the node's first process at a moment of a step; the command ends by itself here, too."""

    def kill():
        pid = engine.inspect(keeper.container)["State"]["Pid"]
        assert pid > 1, "the node does not run: number 0 would be all processes of this test"
        os.kill(pid, signal.SIGKILL)

    assert_no_mess(*act_at(keeper.holdfast, step, kill, *words, moment=moment))


def assert_no_mess(code, told):
    """It ended well, or in one error of its own that says how to go on."""
    assert code in (0, 1, 3), told
    assert "Traceback" not in told
    if code:
        last = json.loads(told.splitlines()[-1])
        assert last["code"] not in ("error", "unexpected"), last
        assert last["hint"], last


def test_the_engine_is_killed_in_the_middle_of_the_first_up(engine, fresh):
    words = ("up", fresh.name, "--listen", ADDRESS)
    killed_and_started_again(engine, fresh, "ensure-container", *words)
    fresh.holdfast(*words)
    assert ours(engine) == (1, 1, 1)


def test_it_listens_where_it_was_asked_to_and_nowhere_else(engine, keeper):
    server = keeper.holdfast.json("status", keeper.name)["server"]
    assert server.startswith(f"https://{ADDRESS}:")
    listed = subprocess.run(
        [*engine.prefix, "ss", "-Hltn"], capture_output=True, text=True, check=True
    ).stdout
    listening = {line.split()[3] for line in listed.splitlines()}
    assert server.removeprefix("https://") in listening
    assert {place.rpartition(":")[0] for place in listening} == {ADDRESS}
    assert keeper.up()["changed"] == []
    keeper.assert_kept()


@pytest.mark.slow
@pytest.mark.parametrize("step", ["wait-node-registered", "wait-node-ready", "run-probe"])
def test_the_nodes_first_process_is_killed_in_the_middle_of_up(engine, keeper, step):
    node_killed(engine, keeper, step, "up", keeper.name, "--recreate")
    keeper.up()
    assert ours(engine) == (1, 1, 1)
    keeper.assert_kept()


@pytest.mark.slow
@pytest.mark.parametrize("step", ["replace-old", "ensure-container", "wait-node-ready"])
def test_the_engine_is_killed_in_the_middle_of_up(engine, keeper, step):
    killed_and_started_again(engine, keeper, step, "up", keeper.name, "--recreate")
    keeper.up()
    assert ours(engine) == (1, 1, 1)
    keeper.assert_kept()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kill", "step", "moment"),
    [
        (killed_and_started_again, "let-stop", STARTED),
        (killed_and_started_again, "stop-container", STARTED),
        (killed_and_started_again, "stop-container", FINISHED),
        (node_killed, "let-stop", STARTED),
        (node_killed, "let-stop", FINISHED),
        (node_killed, "stop-container", STARTED),
    ],
)
def test_engine_or_node_is_killed_in_the_middle_of_stop(engine, keeper, kill, step, moment):
    kill(engine, keeper, step, "stop", keeper.name, moment=moment)
    keeper.holdfast("stop", keeper.name)
    assert engine.inspect(keeper.container)["State"]["Running"] is False
    keeper.holdfast("start", keeper.name)
    keeper.assert_kept()


@pytest.mark.slow
@pytest.mark.parametrize("step", ["start-container", "wait-node-ready", "run-probe"])
def test_the_engine_is_killed_in_the_middle_of_start(engine, keeper, step):
    keeper.holdfast("stop", keeper.name)
    killed_and_started_again(engine, keeper, step, "start", keeper.name)
    assert_started(engine, keeper)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("step", "moment"),
    [("start-container", FINISHED), ("wait-node-ready", STARTED), ("run-probe", STARTED)],
)
def test_the_nodes_first_process_is_killed_in_the_middle_of_start(engine, keeper, step, moment):
    """Before its container is started there is none to kill."""
    keeper.holdfast("stop", keeper.name)
    node_killed(engine, keeper, step, "start", keeper.name, moment=moment)
    assert_started(engine, keeper)


def assert_started(engine, keeper):
    """The same words again: it runs, and nothing of it is there twice."""
    keeper.holdfast("start", keeper.name)
    assert engine.inspect(keeper.container)["State"]["Running"] is True
    assert ours(engine) == (1, 1, 1)
    keeper.assert_kept()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kill", "step", "moment"),
    [
        (killed_and_started_again, "stop-container", STARTED),
        (killed_and_started_again, "remove-container", STARTED),
        (killed_and_started_again, "remove-network", STARTED),
        (node_killed, "let-stop", STARTED),
        (node_killed, "let-stop", FINISHED),
        (node_killed, "stop-container", STARTED),
    ],
)
def test_engine_or_node_is_killed_in_the_middle_of_destroy(engine, keeper, kill, step, moment):
    words = ("destroy", keeper.name, "--yes", keeper.name)
    kill(engine, keeper, step, *words, moment=moment)
    keeper.holdfast(*words)
    assert ours(engine) == (0, 0, 1)
    keeper.up()
    keeper.assert_kept()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kill", "step"),
    [
        *product((killed_and_started_again,), ("put-aside", "wait-node-registered", "wait-node-ready")),
        *product((node_killed,), ("wait-node-registered", "wait-node-ready", "run-probe")),
    ],
)
def test_engine_or_node_is_killed_in_the_middle_of_an_upgrade(engine, keeper, other_image, kill, step):
    """A node that dies in the gate may count as unwell: then it is back, and the same words try again."""
    target = other_image if engine.inspect(keeper.container)["Config"]["Image"] != other_image else ""
    words = ("upgrade", keeper.name, *(("--image", target) if target else ()))
    kill(engine, keeper, step, *words)
    keeper.holdfast(*words)
    assert (engine.inspect(keeper.container)["Config"]["Image"] == other_image) is bool(target)
    assert ours(engine) == (1, 1, 1)
    keeper.assert_kept()


@pytest.mark.slow
def test_an_engine_without_a_byte_left_is_named_and_the_same_command_goes_on_when_there_is_room(
    engine, keeper
):
    other = TestGateway("full", keeper.holdfast)
    with engine.full():
        ended = other.holdfast.run("up", other.name)
    assert ended.returncode == 3, ended.stderr
    assert "[disk-full]" in ended.stderr
    assert "Traceback" not in ended.stderr
    other.up()
    other.destroy()
    # Its kubelet may have seen the full disk, and believes it for minutes, or until it is started again.
    keeper.holdfast("restart", keeper.name)
    keeper.assert_kept()
