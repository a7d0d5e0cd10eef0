"""Another image on the same data: it gets there, or back by itself; killed anywhere, it goes on."""

import json
import signal
import subprocess

import pytest
from tests.support.commands import Holdfast
from tests.support.gateways import claim, pod
from tests.support.node_images import NodeImages

from holdfast.containers.containers import list_containers
from holdfast.containers.engine import connect
from holdfast.containers.labels import GATEWAY

pytestmark = pytest.mark.engine


@pytest.fixture(scope="module")
def images():
    with NodeImages() as made:
        yield made


@pytest.fixture(scope="module")
def keeper(new_gateway, tmp_path_factory):
    """A gateway with a pod that has written a file into its volume."""
    made = new_gateway(
        "upgrade", holdfast=Holdfast(tmp_path_factory.mktemp("home"), HOLDFAST_WORKLOADS="false")
    )
    made.up()
    made.apply(claim("work"), pod("keeper", claim="work"))
    made.wait_ready("keeper")
    made.execute("keeper", "sh", "-c", "head -c 300000 /dev/urandom > /data/blob && sync")
    made.checksum = made.execute("keeper", "sha256sum", "/data/blob")
    made.uid = made.get("pod", "keeper")["metadata"]["uid"]
    return made


def assert_kept(gateway):
    """The very same pod, with its data, and one container without anything beside it."""
    gateway.wait_ready("keeper")
    assert gateway.execute("keeper", "sha256sum", "/data/blob") == gateway.checksum
    assert gateway.get("pod", "keeper")["metadata"]["uid"] == gateway.uid
    (container,) = list_containers(connect(), label=f"{GATEWAY}={gateway.name}")
    assert container["Names"] == [f"/{gateway.container}"]


def image_of(gateway):
    return gateway.inspect()["Image"]


def killed_after(gateway, step, *words):
    """Start a command and kill it as soon as it says that a step has ended, or had ended before.

    A command that was to be killed after one step may come through the next before the signal reaches it.
    """
    process = gateway.holdfast.start(*words, "--json", start_new_session=True)
    told = []
    try:
        for line in process.stderr:
            told.append(json.loads(line))
            if told[-1]["event"] in ("step.finished", "step.skipped") and told[-1]["step"] == step:
                process.send_signal(signal.SIGKILL)
                break
        else:
            pytest.fail(f"holdfast {' '.join(words)} ended before the end of {step}: {told[-1]}")
    finally:
        process.kill()
        process.communicate()


def refused(ended: subprocess.CompletedProcess, code: str) -> dict:
    """The error of a command that needs a person."""
    last = json.loads(ended.stderr.splitlines()[-1])
    assert (ended.returncode, last["code"]) == (3, code), ended.stderr
    return last


def test_a_plan_and_a_refusal_change_nothing(keeper, images):
    before = keeper.inspect()
    planned = keeper.holdfast.run("upgrade", keeper.name, "--plan", "--image", images.make("other"))
    assert planned.returncode == 5, planned.stderr
    assert "touches the datastore" in planned.stdout
    assert "Kubernetes v1.34.4 → v1.34.4" in planned.stdout
    for tag, version, words in (
        ("skips", "v1.36.0", "minor versions cannot be skipped"),
        ("older", "v1.33.13", "cannot go back to an older minor version"),
    ):
        image = images.make(tag, kubernetes=version)
        for command in ("upgrade", "up"):
            ended = keeper.holdfast.run(command, keeper.name, "--image", image, "--json")
            assert words in refused(ended, "image-unfit")["error"]
    after = keeper.inspect()
    assert (before["Id"], before["State"]["StartedAt"]) == (after["Id"], after["State"]["StartedAt"])


def test_an_upgrade_that_is_killed_twice_is_finished_by_up(keeper, images):
    image = images.make("other")
    killed_after(keeper, "take-snapshot", "upgrade", keeper.name, "--image", image)
    killed_after(keeper, "put-aside", "upgrade", keeper.name, "--image", image)
    # An earlier version of holdfast left it under this name.
    connect().client.rename(f"before-of-{keeper.container}", f"{keeper.container}-before")
    ended = keeper.holdfast.run("destroy", keeper.name, "--yes", keeper.name, "--json")
    assert "is not finished" in refused(ended, "permanent")["error"]
    ended = keeper.holdfast.run("up", keeper.name, "--push-image", "t-upgrade-no-such-image:1", "--json")
    refused(ended, "image-missing")
    killed_after(keeper, "wait-api-ready", "up", keeper.name)
    keeper.kubectl("create", "configmap", "written-since")
    keeper.up()
    assert keeper.get("configmap", "written-since")
    assert image_of(keeper) == images.id_of(image)
    assert_kept(keeper)
    before = keeper.inspect()
    again = keeper.holdfast.json("upgrade", keeper.name, "--image", image)
    assert "upgraded_to" not in again
    assert keeper.inspect()["State"]["StartedAt"] == before["State"]["StartedAt"]
    assert keeper.holdfast.run("upgrade", keeper.name, "--image", image, "--plan").returncode == 0


def test_a_node_that_keeps_ending_is_taken_back_also_when_that_is_killed(keeper, images):
    before, dies = image_of(keeper), images.make("dies", entrypoint=["/bin/sh", "-c", "echo no luck; exit 1"])
    keeper.kubectl("create", "configmap", "written-before")
    killed_after(keeper, "restore-snapshot", "upgrade", keeper.name, "--image", dies)
    told = refused(keeper.holdfast.run("upgrade", keeper.name, "--json"), "upgrade-rolled-back")
    assert "no luck" in told["error"]
    assert "Workspaces were not rolled back; writes to the API were" in told["hint"]
    assert image_of(keeper) == before
    assert keeper.get("configmap", "written-before")
    assert_kept(keeper)


def test_up_with_an_image_that_never_gets_ready_comes_back_too(keeper, images):
    before, sleeps = image_of(keeper), images.make("sleeps", entrypoint=["/bin/sleep", "3600"])
    ended = keeper.holdfast.run("up", keeper.name, "--image", sleeps, "--timeout", "3", "--json")
    assert "not ready within 3 s" in refused(ended, "upgrade-rolled-back")["error"]
    assert image_of(keeper) == before
    assert_kept(keeper)


def test_data_that_is_left_alone_is_not_opened_by_another_minor_version(keeper, images):
    keeper.holdfast("destroy", keeper.name, "--yes", keeper.name)
    ended = keeper.holdfast.run(
        "up", keeper.name, "--image", images.make("next", kubernetes="v1.35.0"), "--json"
    )
    assert "data is of Kubernetes v1.34.4" in refused(ended, "image-unfit")["error"]
    keeper.up("--image", images.make("other"))
    assert_kept(keeper)


def test_without_the_old_image_there_is_no_way_back_and_nothing_is_touched(keeper, images):
    keeper.holdfast("stop", keeper.name)
    images.remove(image_of(keeper))
    ended = keeper.holdfast.run("upgrade", keeper.name, "--json")
    assert "no way back; nothing was changed" in refused(ended, "image-missing")["error"]
    assert list_containers(connect(), label=f"{GATEWAY}={keeper.name}")[0]["Names"] == [
        f"/{keeper.container}"
    ]
