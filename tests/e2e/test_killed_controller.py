"""The controller of a real gateway is killed at random while a hundred sandboxes come, sleep, wake and go.

`up` has made the controller as a Deployment; a real kubelet runs the pods, a real provisioner makes and
removes the volumes, and claims take sandboxes out of a warm pool whose size changes. In the end each sandbox
is what was asked of it last, kept files are there, and pods, claims, Services, volumes and their folders on
the disk are counted. How it is killed, with the kubelet's pauses in between: tests/support/controller_kills.
What the same lives come to without a kubelet, in seconds: tests/integration/controller/test_killed_controller.py.

The seed is in the test's name; `LIVES_SEED=7 pytest …` takes another one.
"""  # noqa: E501

from __future__ import annotations

import os
import threading
import time

import pytest
from tests.support.controller_killer import ControllerKiller, wait_leading
from tests.support.controller_process import SandboxNamespace, condition_summary
from tests.support.gateway import HELPER_IMAGE
from tests.support.holdfast_cli import HoldfastCli
from tests.support.random_lifecycles import EVENTUALLY, RandomLifecycles

from holdfast.containers import run_in_container
from holdfast.kube import Objects, api_client
from holdfast.remote import connect

pytestmark = [pytest.mark.engine, pytest.mark.slow, pytest.mark.timeout(1200)]

SEED = int(os.environ.get("LIVES_SEED", "1"))
BOXES, CLAIMS, KEPT_SANDBOXES, KILLS = 100, 20, 5, 15
PACE = 0.25
NAMESPACE_NAME = "lives"
# The node's own smallest image: a hundred of them run on two cores.
PAUSE = {
    "terminationGracePeriodSeconds": 1,
    "containers": [{"name": "main", "image": "holdfast.dev/pause:1", "imagePullPolicy": "Never"}],
}
KEPT_POD_SPEC = {
    "terminationGracePeriodSeconds": 1,
    "containers": [
        {
            "name": "main",
            "image": HELPER_IMAGE,
            "imagePullPolicy": "Never",
            "command": ["/bin/sh", "-c", "exec tail -f /dev/null"],
            "volumeMounts": [{"name": "workspace", "mountPath": "/sandbox"}],
        }
    ],
}


@pytest.fixture(scope="module")
def gateway(new_gateway, holdfast):
    made = new_gateway("lives", holdfast=HoldfastCli(holdfast.home))
    made.up()
    return made


@pytest.fixture(scope="module")
def ns(gateway):
    path = gateway.holdfast.home / "config" / "gateways" / gateway.name / "kubeconfig"
    with api_client(path) as api:
        objects = Objects(api)
        objects.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE_NAME}})
        yield SandboxNamespace(objects, NAMESPACE_NAME)


@pytest.fixture
def summary_lines(request):
    """Lines about what happened, for people."""
    lines = []
    yield lines
    plugins = request.config.pluginmanager
    reporter = plugins.get_plugin("terminalreporter")
    with plugins.get_plugin("capturemanager").global_and_fixture_disabled():
        reporter.ensure_newline()
        reporter.section("what the sandboxes went through")
        for line in lines:
            reporter.write_line(line)


@pytest.mark.parametrize("seed", [SEED], ids=[f"seed {SEED}"])
def test_sandboxes_converge_and_nothing_is_leaked(gateway, ns, summary_lines, seed):
    lives = RandomLifecycles(ns, seed, boxes=BOXES, claims=CLAIMS, pod_spec=PAUSE)
    lives.create_pool()
    keepers = [
        lives.create_permanent_sandbox(f"keeper-{number}", KEPT_POD_SPEC).name
        for number in range(KEPT_SANDBOXES)
    ]
    for name in keepers:
        ns.wait_conditions("Sandbox", name, Ready="True DependenciesReady")
        in_pod(gateway, name, f"echo {name} of {seed} > /sandbox/kept && sync")
    began = time.monotonic()
    with ControllerKiller(gateway, seed, kills=KILLS) as killer:
        while not (killer.is_finished and lives.all_created):
            lives.apply_random_operation()
            threading.Event().wait(PACE)
    ended = time.monotonic()
    leader = wait_leading(ns.objects)
    lives.wait_converged()
    EVENTUALLY.call(lambda: assert_volumes(gateway, ns))
    summary_lines.append(
        f"seed {seed}: {sum(lives.operation_counts.values())} operations in {ended - began:.0f} s: "
        f"{lives.operation_counts}"
    )
    summary_lines.append(
        f"{len(killer.kills)} kills, {killer.killed_while_leading} of them of a controller at work"
    )
    summary_lines.append(
        f"all right {time.monotonic() - ended:.0f} s after the last wish: {lives.object_counts()}"
    )
    assert_killed(killer)
    assert (
        min(lives.operation_counts[wish] for wish in ("suspend", "resume", "delete", "lose its pod"))
        >= BOXES // 10
    )
    for name in keepers:
        ns.patch("Sandbox", name, {"spec": {"operatingMode": "Running"}})
        ns.wait("Sandbox", name, is_running_sandbox)
        assert in_pod(gateway, name, "cat /sandbox/kept").strip() == f"{name} of {seed}"
    lives.delete_all()
    EVENTUALLY.call(lambda: assert_volumes(gateway, ns))
    assert wait_leading(ns.objects)["metadata"]["uid"] == leader["metadata"]["uid"]


def assert_killed(killer):
    """Each kill was of another container, many came while the controller worked, and none found it broken."""
    assert len(killer.kills) == KILLS
    assert len({(kill.pod, kill.restart_count) for kill in killer.kills}) == KILLS
    assert killer.killed_while_leading >= KILLS // 3
    for kill in killer.kills:
        assert "Traceback" not in kill.log, kill.log


def assert_volumes(gateway, place):
    """Every volume and every folder on the node's disk is that of a claim that is there."""
    claims = [each for each in place.list("PersistentVolumeClaim") if each["spec"].get("volumeName")]
    wanted = {each["spec"]["volumeName"]: each["metadata"]["name"] for each in claims}
    volumes = place.objects.list("PersistentVolume").items
    assert {each["metadata"]["name"] for each in volumes} == set(wanted)
    assert all(each["status"]["phase"] == "Bound" for each in volumes)
    told = run_in_container(connect(), gateway.container, ["ls", "/var/lib/holdfast/local-path"])
    assert told.exit_code == 0, told.output
    assert set(told.output.split()) == {
        f"{volume}_{NAMESPACE_NAME}_{claim}" for volume, claim in wanted.items()
    }
    helpers = [each["metadata"]["name"] for each in place.objects.list("Pod", namespace="kube-system").items]
    assert not [name for name in helpers if name.startswith("helper-pod")]


def is_running_sandbox(found):
    """Whether Ready is true for the current generation."""
    ready = next(row for row in found["status"]["conditions"] if row["type"] == "Ready")
    current = ready["observedGeneration"] == found["metadata"]["generation"]
    return current and condition_summary(found, "Ready") == "True DependenciesReady"


def in_pod(gateway, name, script):
    return gateway.kubectl("exec", "-n", NAMESPACE_NAME, name, "--", "sh", "-c", script)
