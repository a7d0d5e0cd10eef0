"""Commands continue after the engine or the node's init process was killed, and after a full disk.

All tests use one private engine and one gateway, whose workspace must be unchanged after each of them.
"""

import json
import os
import signal
import subprocess
from itertools import product

import pytest
from tests.support.gateway import TestGateway
from tests.support.holdfast_cli import HoldfastCli
from tests.support.node_images import NodeImages
from tests.support.small_disk_engine import SmallDiskEngine
from tests.support.step_interruption import FINISHED, STARTED, run_and_act_at

from holdfast.containers import GATEWAY

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
def absent_gateway(engine, tmp_path_factory):
    """A gateway that is not there yet, on that engine."""
    home = tmp_path_factory.mktemp("home")
    command = HoldfastCli(
        home, prefix=engine.prefix, DOCKER_HOST=engine.socket, HOLDFAST_WORKLOADS="false",
        # As long as this a command waits for an engine that does not come back before it has ended.
        HOLDFAST_TIMEOUTS_HEALTH="120", HOLDFAST_TIMEOUTS_ENGINE_RESTART="5",
    )  # fmt: skip
    gateway = TestGateway("trouble", command)
    yield gateway
    gateway.force_destroy(engine.connect())


@pytest.fixture(scope="module")
def gateway(absent_gateway):
    """The gateway, up, with a pod that has written a file; it listens beyond loopback, as asked."""
    absent_gateway.up("--listen", ADDRESS)
    return absent_gateway.write_test_file()


@pytest.fixture(scope="module")
def other_image(engine):
    with NodeImages(engine.connect()) as images:
        yield images.build("other")


def holdfast_objects(engine):
    """How many containers, networks and volumes of holdfast's the engine has."""
    client, filters = engine.connect().client, {"label": GATEWAY}
    return (
        len(client.containers(all=True, filters=filters)),
        len(client.networks(filters=filters)),
        len(client.volumes(filters=filters)["Volumes"] or []),
    )


def run_with_engine_killed_at(engine, keeper, step, *words, moment=STARTED):
    """Kill the engine at a point of a step, and wait until the command exits."""
    try:
        code, told = run_and_act_at(
            keeper.holdfast, step, lambda: engine.stop(signal.SIGKILL), *words, moment=moment
        )
    finally:
        if engine.is_stopped:  # whatever went wrong, the next test needs it
            engine.start()
    assert_clean_failure(code, told)


def run_with_node_killed_at(engine, keeper, step, *words, moment=STARTED):
    """Kill the node's init process at a point of a step, and wait until the command exits."""

    def kill():
        pid = engine.inspect(keeper.container)["State"]["Pid"]
        assert pid > 1, "the node does not run: number 0 would be all processes of this test"
        os.kill(pid, signal.SIGKILL)

    assert_clean_failure(*run_and_act_at(keeper.holdfast, step, kill, *words, moment=moment))


def assert_clean_failure(code, told):
    """The command succeeded, or printed one holdfast error with a hint."""
    assert code in (0, 1, 3), told
    assert "Traceback" not in told
    if code:
        last = json.loads(told.splitlines()[-1])
        assert last["code"] not in ("error", "unexpected"), last
        assert last["hint"], last


def test_engine_killed_during_first_up(engine, absent_gateway):
    words = ("up", absent_gateway.name, "--listen", ADDRESS)
    run_with_engine_killed_at(engine, absent_gateway, "ensure-container", *words)
    absent_gateway.holdfast(*words)
    assert holdfast_objects(engine) == (1, 1, 1)


def test_node_listens_only_on_requested_address(engine, gateway):
    server = gateway.holdfast.json("status", gateway.name)["server"]
    assert server.startswith(f"https://{ADDRESS}:")
    listed = subprocess.run(
        [*engine.prefix, "ss", "-Hltn"], capture_output=True, text=True, check=True
    ).stdout
    listening = {line.split()[3] for line in listed.splitlines()}
    assert server.removeprefix("https://") in listening
    assert {place.rpartition(":")[0] for place in listening} == {ADDRESS}
    assert gateway.up()["changed"] == []
    gateway.assert_test_file_intact()


@pytest.mark.slow
@pytest.mark.parametrize("step", ["wait-node-registered", "wait-node-ready", "run-probe"])
def test_node_init_process_killed_during_up(engine, gateway, step):
    run_with_node_killed_at(engine, gateway, step, "up", gateway.name, "--recreate")
    gateway.up()
    assert holdfast_objects(engine) == (1, 1, 1)
    gateway.assert_test_file_intact()


@pytest.mark.slow
@pytest.mark.parametrize("step", ["replace-old", "ensure-container", "wait-node-ready"])
def test_engine_killed_during_up(engine, gateway, step):
    run_with_engine_killed_at(engine, gateway, step, "up", gateway.name, "--recreate")
    gateway.up()
    assert holdfast_objects(engine) == (1, 1, 1)
    gateway.assert_test_file_intact()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kill", "step", "moment"),
    [
        (run_with_engine_killed_at, "let-stop", STARTED),
        (run_with_engine_killed_at, "stop-container", STARTED),
        (run_with_engine_killed_at, "stop-container", FINISHED),
        (run_with_node_killed_at, "let-stop", STARTED),
        (run_with_node_killed_at, "let-stop", FINISHED),
        (run_with_node_killed_at, "stop-container", STARTED),
    ],
)
def test_engine_or_node_killed_during_stop(engine, gateway, kill, step, moment):
    kill(engine, gateway, step, "stop", gateway.name, moment=moment)
    gateway.holdfast("stop", gateway.name)
    assert engine.inspect(gateway.container)["State"]["Running"] is False
    gateway.holdfast("start", gateway.name)
    gateway.assert_test_file_intact()


@pytest.mark.slow
@pytest.mark.parametrize("step", ["start-container", "wait-node-ready", "run-probe"])
def test_engine_killed_during_start(engine, gateway, step):
    gateway.holdfast("stop", gateway.name)
    run_with_engine_killed_at(engine, gateway, step, "start", gateway.name)
    assert_started(engine, gateway)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("step", "moment"),
    [("start-container", FINISHED), ("wait-node-ready", STARTED), ("run-probe", STARTED)],
)
def test_node_init_process_killed_during_start(engine, gateway, step, moment):
    """Before its container is started there is none to kill."""
    gateway.holdfast("stop", gateway.name)
    run_with_node_killed_at(engine, gateway, step, "start", gateway.name, moment=moment)
    assert_started(engine, gateway)


def assert_started(engine, keeper):
    """The same words again: it runs, and nothing of it is there twice."""
    keeper.holdfast("start", keeper.name)
    assert engine.inspect(keeper.container)["State"]["Running"] is True
    assert holdfast_objects(engine) == (1, 1, 1)
    keeper.assert_test_file_intact()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kill", "step", "moment"),
    [
        (run_with_engine_killed_at, "stop-container", STARTED),
        (run_with_engine_killed_at, "remove-container", STARTED),
        (run_with_engine_killed_at, "remove-network", STARTED),
        (run_with_node_killed_at, "let-stop", STARTED),
        (run_with_node_killed_at, "let-stop", FINISHED),
        (run_with_node_killed_at, "stop-container", STARTED),
    ],
)
def test_engine_or_node_killed_during_destroy(engine, gateway, kill, step, moment):
    words = ("destroy", gateway.name, "--yes", gateway.name)
    kill(engine, gateway, step, *words, moment=moment)
    gateway.holdfast(*words)
    assert holdfast_objects(engine) == (0, 0, 1)
    gateway.up()
    gateway.assert_test_file_intact()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kill", "step"),
    [
        *product((run_with_engine_killed_at,), ("put-aside", "wait-node-registered", "wait-node-ready")),
        *product((run_with_node_killed_at,), ("wait-node-registered", "wait-node-ready", "run-probe")),
    ],
)
def test_engine_or_node_killed_during_upgrade(engine, gateway, other_image, kill, step):
    """A node that dies in the gate may count as unwell: then it is back, and the same words try again."""
    target = other_image if engine.inspect(gateway.container)["Config"]["Image"] != other_image else ""
    words = ("upgrade", gateway.name, *(("--image", target) if target else ()))
    kill(engine, gateway, step, *words)
    gateway.holdfast(*words)
    assert (engine.inspect(gateway.container)["Config"]["Image"] == other_image) is bool(target)
    assert holdfast_objects(engine) == (1, 1, 1)
    gateway.assert_test_file_intact()


@pytest.mark.slow
def test_full_engine_disk_is_reported_and_rerun_continues(engine, gateway):
    other = TestGateway("full", gateway.holdfast)
    with engine.fill_disk():
        ended = other.holdfast.run("up", other.name)
    assert ended.returncode == 3, ended.stderr
    assert "[disk-full]" in ended.stderr
    assert "Traceback" not in ended.stderr
    other.up()
    other.destroy()
    # Its kubelet may have seen the full disk, and believes it for minutes, or until it is started again.
    gateway.holdfast("restart", gateway.name)
    gateway.assert_test_file_intact()
