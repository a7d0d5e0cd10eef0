"""`upgrade` killed inside every step, on the real engine: run again, it ends as asked, with its data."""

import importlib.util
from pathlib import Path

import pytest
from tests.support.commands import Holdfast
from tests.support.gateways import TestGateway
from tests.support.node_images import NodeImages

pytestmark = [pytest.mark.engine, pytest.mark.slow]

CHANGED = {
    "stop-old-node", "take-snapshot", "put-aside", "ensure-container", "keep-running", "start-container",
    "write-kubeconfig", "run-probe", "write-metadata", "mark-proved", "finish-upgrade",
}  # fmt: skip
"""The steps of an upgrade that change something, where all else is as it was."""

PARTS = 6


@pytest.fixture
def plan(tmp_path):
    """The plan under test, with its gateway up; both are taken away in the end."""
    spec = importlib.util.spec_from_file_location("upgrade_plan", Path(__file__).with_name("upgrade_plan.py"))
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    with NodeImages() as images:
        try:
            module.set_up(images.make("other"), tmp_path)
            yield module
        finally:
            module.clear()


@pytest.mark.parametrize("part", range(PARTS))
def test_an_upgrade_converges_wherever_it_is_killed(crash_matrix, plan, tmp_path, part):
    """In parts, each of which takes minutes: every n-th step that has something to do in an upgrade."""
    home = Holdfast(tmp_path, HOLDFAST_WORKLOADS="false")
    keeper = TestGateway(plan.NAME, home).keep_a_file()

    def observe(world):
        keeper.assert_kept()
        return plan.observe(world)

    steps = [step.name for step in plan.build(tmp_path / "steps").steps if step.name in CHANGED]
    assert set(steps) == CHANGED
    crash_matrix(plan.build, observe=observe, moments=1, troubles=("killed",), steps=steps[part::PARTS])
