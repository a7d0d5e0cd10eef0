"""A rollback killed at every step, on the real engine: a rerun restores the old version."""

import pytest
from tests.support.crash_plans import load_plan
from tests.support.gateway import TestGateway
from tests.support.holdfast_cli import HoldfastCli
from tests.support.node_images import NodeImages

pytestmark = [pytest.mark.engine, pytest.mark.slow]

CHANGED = {
    "mark-rollback", "remove-new-container", "restore-snapshot", "take-back", "keep-running",
    "start-container", "run-probe", "finish-rollback",
}  # fmt: skip
"""The steps of a rollback that change something when everything else is unchanged."""

PARTS = 4


@pytest.fixture
def plan(tmp_path):
    """The plan under test, with its gateway up; both are taken away in the end."""
    module = load_plan("rollback_plan")
    with NodeImages() as images:
        try:
            dies = ["/bin/sh", "-c", "echo no luck; exit 1"]
            module.set_up(images.build("dies", entrypoint=dies), tmp_path)
            yield module
        finally:
            module.clear()


@pytest.mark.parametrize("part", range(PARTS))
def test_rollback_converges_when_killed_at_any_step(crash_matrix, plan, tmp_path, part):
    """In parts, each of which takes minutes: every n-th step that changes something in a rollback."""
    keeper = TestGateway(plan.NAME, HoldfastCli(tmp_path, HOLDFAST_WORKLOADS="false")).write_test_file()

    def observe(world):
        keeper.assert_test_file_intact()
        return plan.observe(world)

    steps = [step.name for step in plan.build(tmp_path / "steps").steps if step.name in CHANGED]
    assert set(steps) == CHANGED
    report = crash_matrix(
        plan.build, observe=observe, kill_points=1, scenarios=("killed",), steps=steps[part::PARTS]
    )
    reached = [finding for finding in report.findings if finding.reached]
    assert len(reached) == 3 * len(steps[part::PARTS]), "a step had nothing to do, and was not killed"
