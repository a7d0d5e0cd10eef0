"""`up` killed before, inside and after every step, on the real engine: run again, it ends as it should."""

import pytest
from tests.support.crash_plans import load_plan

from holdfast.testing.crash.cases import SCENARIOS

pytestmark = pytest.mark.engine

WORKLOADS = (
    "ensure-namespace",
    "reconcile-tls",
    "write-client-files",
    "push-gateway-image",
    "apply-workloads",
)


NOTHING_TO_DO = {
    "ensure-image", "replace-old", "finish-interrupted-rollback", "write-registries", "keep-running",
    "remove-stale-nodes", "repin-volumes",
}  # fmt: skip
"""The steps of a first `up` that find everything as it should be, and so cannot be killed."""


def steps_never_killed(report):
    """Steps that no case came to; a line of a step that one run had and another had not is none."""
    return {finding.case for finding in report.findings if not finding.reached and "," not in finding.case}


@pytest.fixture
def plan():
    """The plan under test; gateways that a case left behind are taken away in the end."""
    module = load_plan("up_plan")
    yield module
    module.clear()


@pytest.mark.parametrize("worlds", [1, pytest.param(5, marks=pytest.mark.slow)])
def test_up_converges_when_killed_at_random_moments(crash_matrix, plan, worlds):
    crash_matrix(plan.build, observe=plan.observe, random=worlds)


@pytest.mark.slow
def test_up_converges_when_killed_at_any_step(crash_matrix, plan):
    report = crash_matrix(plan.build, observe=plan.observe, kill_points=3, scenarios=("killed",))
    assert steps_never_killed(report) == NOTHING_TO_DO


@pytest.mark.slow
def test_up_converges_when_killed_during_workload_steps(crash_matrix, plan, monkeypatch):
    monkeypatch.setenv("HOLDFAST_WORKLOADS", "true")
    report = crash_matrix(
        plan.build, observe=plan.observe, kill_points=1, scenarios=("killed",), steps=WORKLOADS
    )
    assert steps_never_killed(report) == set()


@pytest.mark.slow
def test_up_converges_after_every_other_fault(crash_matrix, plan):
    troubles = tuple(trouble for trouble in SCENARIOS if trouble not in {"killed", "changed input"})
    crash_matrix(plan.build, observe=plan.observe, scenarios=troubles)


@pytest.mark.slow
def test_up_converges_when_setting_changes_after_kill_or_finished_run(crash_matrix, plan):
    crash_matrix(
        plan.build_with_settings,
        observe=plan.observe,
        params={},
        changed_params={"api_names": plan.OTHER_NAME},
        scenarios=("changed input",),
    )
