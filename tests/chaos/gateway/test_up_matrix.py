"""`up` killed before, inside and after every step, on the real engine: run again, it ends as it should."""

import pytest
from tests.support.plan_modules import load_plan

from holdfast.testing.crash import TROUBLES

pytestmark = pytest.mark.engine

WORKLOADS = (
    "ensure-namespace",
    "reconcile-tls",
    "write-client-files",
    "push-gateway-image",
    "apply-workloads",
)


NOTHING_TO_DO = {
    "ensure-image", "replace-old", "write-registries", "keep-running", "remove-stale-nodes", "repin-volumes",
}  # fmt: skip
"""The steps of a first `up` that find everything as it should be, and so cannot be killed."""


def never_killed(report):
    """Steps that no case came to; a line of a step that one run had and another had not is none."""
    return {finding.case for finding in report.findings if not finding.reached and "," not in finding.case}


@pytest.fixture
def plan():
    """The plan under test; gateways that a case left behind are taken away in the end."""
    module = load_plan("up_plan")
    yield module
    module.clear()


@pytest.mark.parametrize("worlds", [1, pytest.param(5, marks=pytest.mark.slow)])
def test_up_converges_from_random_moments(crash_matrix, plan, worlds):
    crash_matrix(plan.build, observe=plan.observe, random=worlds)


@pytest.mark.slow
def test_up_converges_wherever_it_is_killed(crash_matrix, plan):
    report = crash_matrix(plan.build, observe=plan.observe, moments=3, troubles=("killed",))
    assert never_killed(report) == NOTHING_TO_DO


@pytest.mark.slow
def test_up_converges_wherever_its_workloads_are_cut(crash_matrix, plan, monkeypatch):
    monkeypatch.setenv("HOLDFAST_WORKLOADS", "true")
    report = crash_matrix(plan.build, observe=plan.observe, moments=1, troubles=("killed",), steps=WORKLOADS)
    assert never_killed(report) == set()


@pytest.mark.slow
def test_up_converges_after_every_other_trouble(crash_matrix, plan):
    troubles = tuple(trouble for trouble in TROUBLES if trouble not in {"killed", "changed input"})
    crash_matrix(plan.build, observe=plan.observe, troubles=troubles)


@pytest.mark.slow
def test_up_converges_when_a_setting_is_changed_after_a_kill_or_a_finished_run(crash_matrix, plan):
    crash_matrix(
        plan.build_with_settings,
        observe=plan.observe,
        params={},
        changed={"api_names": plan.OTHER_NAME},
        troubles=("changed input",),
    )
