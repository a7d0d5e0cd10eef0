"""An upgrade succeeds or is rolled back; after a kill at any point, a rerun continues it."""

import json
import signal
import subprocess

import pytest
from tests.support.gateway import pod_manifest, pvc_manifest
from tests.support.hints import execute_hint, hint_commands
from tests.support.holdfast_cli import HoldfastCli
from tests.support.node_images import NodeImages

from holdfast.containers import GATEWAY, list_containers
from holdfast.remote import connect

pytestmark = pytest.mark.engine


@pytest.fixture(scope="module")
def images():
    with NodeImages() as made:
        yield made


@pytest.fixture(scope="module")
def gateway(new_gateway, tmp_path_factory):
    """A gateway with a pod that has written a file into its volume."""
    made = new_gateway(
        "upgrade", holdfast=HoldfastCli(tmp_path_factory.mktemp("home"), HOLDFAST_WORKLOADS="false")
    )
    made.up()
    made.apply(pvc_manifest("work"), pod_manifest("keeper", claim="work"))
    made.wait_ready("keeper")
    made.exec_in_pod("keeper", "sh", "-c", "head -c 300000 /dev/urandom > /data/blob && sync")
    made.checksum = made.exec_in_pod("keeper", "sha256sum", "/data/blob")
    made.uid = made.get("pod", "keeper")["metadata"]["uid"]
    return made


def assert_data_intact(gateway):
    """The same pod with its data, and exactly one container."""
    gateway.wait_ready("keeper")
    assert gateway.exec_in_pod("keeper", "sha256sum", "/data/blob") == gateway.checksum
    assert gateway.get("pod", "keeper")["metadata"]["uid"] == gateway.uid
    (container,) = list_containers(connect(), label=f"{GATEWAY}={gateway.name}")
    assert container["Names"] == [f"/{gateway.container}"]


def image_of(gateway):
    return gateway.inspect()["Image"]


def kill_after_step(gateway, step, *words):
    """Start a command and kill it after the event that a step is finished or skipped.

    The command may finish the next step before the signal arrives.
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


def assert_refused(ended: subprocess.CompletedProcess, code: str) -> dict:
    """Return the error of a command that requires manual action."""
    last = json.loads(ended.stderr.splitlines()[-1])
    assert (ended.returncode, last["code"]) == (3, code), ended.stderr
    return last


def test_plan_and_refused_upgrade_change_nothing(gateway, images):
    before = gateway.inspect()
    planned = gateway.holdfast.run("upgrade", gateway.name, "--plan", "--image", images.build("other"))
    assert planned.returncode == 5, planned.stderr
    assert "touches the datastore" in planned.stdout
    assert "Kubernetes v1.34.4 → v1.34.4" in planned.stdout
    for tag, version, words in (
        ("skips", "v1.36.0", "minor versions cannot be skipped"),
        ("older", "v1.33.13", "cannot be used by an older minor version"),
    ):
        image = images.build(tag, kubernetes=version)
        for command in ("upgrade", "up"):
            ended = gateway.holdfast.run(command, gateway.name, "--image", image, "--json")
            assert words in assert_refused(ended, "image-unfit")["error"]
    after = gateway.inspect()
    assert (before["Id"], before["State"]["StartedAt"]) == (after["Id"], after["State"]["StartedAt"])


def test_twice_killed_upgrade_is_finished_by_up(gateway, images):
    image = images.build("other")
    kill_after_step(gateway, "take-snapshot", "upgrade", gateway.name, "--image", image)
    kill_after_step(gateway, "put-aside", "upgrade", gateway.name, "--image", image)
    ended = gateway.holdfast.run("destroy", gateway.name, "--yes", gateway.name, "--json")
    assert "an unfinished upgrade" in assert_refused(ended, "permanent")["error"]
    ended = gateway.holdfast.run("up", gateway.name, "--push-image", "t-upgrade-no-such-image:1", "--json")
    assert_refused(ended, "image-missing")
    kill_after_step(gateway, "wait-api-ready", "up", gateway.name)
    gateway.kubectl("create", "configmap", "written-since")
    gateway.up()
    assert gateway.get("configmap", "written-since")
    assert image_of(gateway) == images.id_of(image)
    assert_data_intact(gateway)
    before = gateway.inspect()
    again = gateway.holdfast.json("upgrade", gateway.name, "--image", image)
    assert "upgraded_to" not in again
    assert gateway.inspect()["State"]["StartedAt"] == before["State"]["StartedAt"]
    assert gateway.holdfast.run("upgrade", gateway.name, "--image", image, "--plan").returncode == 0


def test_hint_of_refused_destroy_finishes_the_upgrade(gateway, images):
    image = images.build("third")
    kill_after_step(gateway, "put-aside", "upgrade", gateway.name, "--image", image)
    ended = gateway.holdfast.run("destroy", gateway.name, "--yes", gateway.name)
    finish, _ = hint_commands(
        ended.stderr,
        "Run `holdfast upgrade {}` to finish it, or run `holdfast destroy {} --data` to remove the gateway "
        "with its data.",
    )
    status = gateway.holdfast.run("status", gateway.name).stdout
    assert finish in status
    diagnosis = gateway.holdfast.run("doctor", gateway.name).stdout
    assert hint_commands(diagnosis, "Run `holdfast upgrade {}` to finish it or to roll it back.") == [finish]
    execute_hint(gateway.holdfast, status, "an upgrade is unfinished; run `holdfast upgrade {}` to finish it")
    assert image_of(gateway) == images.id_of(image)
    assert_data_intact(gateway)


def test_hint_of_upgrade_to_another_image_finishes_the_first(gateway, images):
    image = images.build("other")
    kill_after_step(gateway, "put-aside", "upgrade", gateway.name, "--image", image)
    ended = gateway.holdfast.run("upgrade", gateway.name, "--image", images.build("third"))
    execute_hint(gateway.holdfast, ended.stderr, "Run `holdfast upgrade {} --image {}` to finish it.")
    assert image_of(gateway) == images.id_of(image)
    assert_data_intact(gateway)


def test_hint_of_unfinished_rollback_continues_it(gateway, images):
    before, dies = image_of(gateway), images.build("dies", entrypoint=["/bin/sh", "-c", "exit 1"])
    impatient = HoldfastCli(gateway.holdfast.home, HOLDFAST_WORKLOADS="false", HOLDFAST_TIMEOUTS_PROBE="1")
    ended = impatient.run("upgrade", gateway.name, "--image", dies)
    *_, command = hint_commands(ended.stderr, "{} Run `holdfast upgrade {}` to continue the rollback.")
    continued = gateway.holdfast.run(*command.split()[1:], "--json")
    assert_refused(continued, "upgrade-rolled-back")
    assert image_of(gateway) == before
    assert_data_intact(gateway)


def test_crashing_node_is_rolled_back_even_if_rollback_is_killed(gateway, images):
    before, dies = (
        image_of(gateway),
        images.build("dies", entrypoint=["/bin/sh", "-c", "echo no luck; exit 1"]),
    )
    gateway.kubectl("create", "configmap", "written-before")
    kill_after_step(gateway, "restore-snapshot", "upgrade", gateway.name, "--image", dies)
    told = assert_refused(gateway.holdfast.run("upgrade", gateway.name, "--json"), "upgrade-rolled-back")
    assert "no luck" in told["error"]
    assert "Workspaces were not rolled back. Writes to the API since" in told["hint"]
    assert image_of(gateway) == before
    assert gateway.get("configmap", "written-before")
    assert_data_intact(gateway)


def test_up_with_image_that_never_becomes_ready_is_rolled_back(gateway, images):
    before, sleeps = image_of(gateway), images.build("sleeps", entrypoint=["/bin/sleep", "3600"])
    ended = gateway.holdfast.run("up", gateway.name, "--image", sleeps, "--timeout", "3", "--json")
    assert "not ready within 3 s" in assert_refused(ended, "upgrade-rolled-back")["error"]
    assert image_of(gateway) == before
    assert_data_intact(gateway)


def test_retained_data_is_not_opened_by_other_minor_version(gateway, images):
    gateway.holdfast("destroy", gateway.name, "--yes", gateway.name)
    ended = gateway.holdfast.run(
        "up", gateway.name, "--image", images.build("next", kubernetes="v1.35.0"), "--json"
    )
    assert "the gateway's data has v1.34.4" in assert_refused(ended, "image-unfit")["error"]
    gateway.up("--image", images.build("other"))
    assert_data_intact(gateway)


def test_upgrade_without_old_image_is_refused_without_changes(gateway, images):
    gateway.holdfast("stop", gateway.name)
    images.remove(image_of(gateway))
    ended = gateway.holdfast.run("upgrade", gateway.name, "--json")
    assert (
        "a rollback would not be possible; nothing was changed"
        in assert_refused(ended, "image-missing")["error"]
    )
    assert list_containers(connect(), label=f"{GATEWAY}={gateway.name}")[0]["Names"] == [
        f"/{gateway.container}"
    ]
