"""`up` killed at every step while it recreates a gateway on existing data: the workspace is unchanged."""

import pytest
from tests.support.gateway import TestGateway
from tests.support.holdfast_cli import HoldfastCli

pytestmark = [pytest.mark.engine, pytest.mark.slow]

CHANGED = {
    "ensure-network", "ensure-container", "write-registries", "start-container", "write-kubeconfig",
    "run-probe", "write-metadata",
}  # fmt: skip
"""The steps that change something when only the volume exists and the settings name another mirror."""

NOTHING_TO_DO = {
    "ensure-image", "replace-old", "ensure-volume", "finish-interrupted-rollback", "keep-running",
    "remove-stale-nodes", "repin-volumes",
}  # fmt: skip
"""Those that find everything as it should be, and so cannot be killed; the plan has no step besides."""

PARTS = 4


@pytest.mark.parametrize("part", range(PARTS))
def test_up_on_existing_data_converges_when_killed_at_any_step(
    crash_matrix, existing_data_plan, tmp_path, part
):
    """In parts, each of which takes minutes: every n-th step that has something to do."""
    gateway = TestGateway(existing_data_plan.NAME, HoldfastCli(tmp_path))
    gateway.up()
    keeper = gateway.write_test_file()

    def observe(world):
        keeper.assert_test_file_intact()
        return existing_data_plan.observe(world)

    of_the_plan = [
        step.name for step in existing_data_plan.build_unchanged(tmp_path).steps if step.repeat != "always"
    ]
    assert set(of_the_plan) == CHANGED | NOTHING_TO_DO, "a step that this test does not know"
    steps = [step for step in of_the_plan if step in CHANGED][part::PARTS]
    report = crash_matrix(
        existing_data_plan.build, observe=observe, kill_points=2, scenarios=("killed",), steps=steps
    )
    # Inside of a step it is killed at its first line and at its last.
    reached = {tuple(finding.case.split()[:2]) for finding in report.findings if finding.reached}
    assert reached == {(f"{step},", at) for step in steps for at in ("before", "line", "after")}, (
        "a step had nothing to do, and was not killed"
    )
