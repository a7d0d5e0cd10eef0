"""`upgrade` killed inside every step, on the real engine: run again, it ends as asked, with its data."""

import shutil

import pytest
from tests.support.crash_plans import load_plan
from tests.support.gateway import TestGateway
from tests.support.holdfast_cli import HoldfastCli
from tests.support.node_images import NodeImages

from holdfast.containers import find_image, run_in_container
from holdfast.gateway import GatewayFiles
from holdfast.gateway.image_push.containerd_images import full_image_name
from holdfast.gateway.spec import GATEWAY_IMAGE
from holdfast.pki import SECRET_TYPES
from holdfast.remote import connect
from holdfast.testing.crash.cases import KILLED_EXIT_CODE, CrashHarness

pytestmark = [pytest.mark.engine, pytest.mark.slow]

CHANGED = {
    "stop-old-node", "take-snapshot", "put-aside", "ensure-container", "start-container", "run-probe",
    "write-metadata", "mark-proved", "finish-upgrade",
}  # fmt: skip
"""The steps of an upgrade that change something, where all else is as it was."""

NOTHING_TO_DO = {
    "ensure-image", "replace-old", "ensure-network", "ensure-volume", "finish-interrupted-rollback",
    "write-registries", "keep-running", "write-kubeconfig", "remove-stale-nodes", "repin-volumes",
}  # fmt: skip
"""Those that find everything as it should be, and so cannot be killed; a plan has no step besides."""

PARTS = 6

WORKLOADS = (
    "ensure-namespace", "reconcile-tls", "write-client-files", "push-gateway-image", "apply-workloads",
)  # fmt: skip
"""In the order in which each of them can be killed before the next one has been done."""

MOMENTS = ({"at": "before"}, {"at": "inside", "line": 3}, {"at": "after"})
NAMESPACE = "holdfast"


@pytest.fixture
def plan(tmp_path, request):
    """The plan under test, with its gateway up; both are taken away in the end."""
    module = load_plan("upgrade_plan")
    with NodeImages() as images:
        try:
            module.set_up(images.build("other"), tmp_path, workloads=getattr(request, "param", "false"))
            yield module
        finally:
            module.clear()


@pytest.mark.parametrize("part", range(PARTS))
def test_upgrade_converges_when_killed_at_any_step(crash_matrix, plan, tmp_path, part):
    """In parts, each of which takes minutes: every n-th step that has something to do in an upgrade."""
    home = HoldfastCli(tmp_path, HOLDFAST_WORKLOADS="false")
    keeper = TestGateway(plan.NAME, home).write_test_file()

    def observe(world):
        keeper.assert_test_file_intact()
        return plan.observe(world)

    of_the_plan = [step.name for step in plan.build(tmp_path / "steps").steps if step.repeat != "always"]
    assert set(of_the_plan) == CHANGED | NOTHING_TO_DO, "a step that this test does not know"
    steps = [step for step in of_the_plan if step in CHANGED][part::PARTS]
    report = crash_matrix(plan.build, observe=observe, kill_points=1, scenarios=("killed",), steps=steps)
    reached = [finding.case for finding in report.findings if finding.reached]
    assert reached == [f"{step}, {at}" for step in steps for at in ("before", "line 1", "after")], (
        "a step had nothing to do, and was not killed"
    )


@pytest.mark.parametrize("plan", ["true"], indirect=True)
def test_upgrade_converges_when_killed_in_workload_steps(plan, tmp_path):
    """One upgrade, killed three times in each of them; what they make is taken away before each kill."""
    keeper = TestGateway(plan.NAME, HoldfastCli(tmp_path)).write_test_file()
    with CrashHarness(plan.build, tmp_path / "runs") as lab:
        case = lab.new_case()
        for step in WORKLOADS:
            for moment in MOMENTS:
                remove_step_effect(step, keeper)
                code = case.run(kill={"step": step, **moment})
                assert code == KILLED_EXIT_CODE, (
                    f"not killed {moment} in {step}, it ended with {code}:\n{case.log()}"
                )
        assert case.run_to_completion(), case.log()
    keeper.assert_test_file_intact()
    assert plan.observe(case.home / "world") == {
        "containers": 1, "running": True, "image": True, "record": "upgraded",
    }  # fmt: skip
    deployments = keeper.get("deployments", "-n", NAMESPACE)["items"]
    assert {each["metadata"]["name"] for each in deployments} == {"holdfast-api", "holdfast-controller"}
    assert all(each["status"]["readyReplicas"] == 1 for each in deployments)
    assert keeper.holdfast.json("status", plan.NAME)["state"] == "ready"


def remove_step_effect(step, keeper):
    """What a step makes goes, wherever it got to, so that it has something to do."""
    there = ("-n", NAMESPACE, "--ignore-not-found")
    if step == "ensure-namespace":
        keeper.kubectl("delete", "namespace", NAMESPACE, "--ignore-not-found")
    elif step == "reconcile-tls":
        keeper.kubectl("delete", "secret", *SECRET_TYPES, *there)
    elif step == "write-client-files":
        shutil.rmtree(GatewayFiles(keeper.name).mtls, ignore_errors=True)
    elif step == "push-gateway-image":
        image = find_image(connect(), GATEWAY_IMAGE)
        assert image is not None, f"there is no {GATEWAY_IMAGE}"
        words = ["ctr", "-n", "k8s.io", "images", "rm", "--sync", full_image_name(GATEWAY_IMAGE), image.id]
        run_in_container(connect(), keeper.container, words)
    else:
        keeper.kubectl("delete", "deployment", "--all", "-n", NAMESPACE)
