"""`upgrade` killed inside every step, on the real engine: run again, it ends on the image asked for."""

import importlib.util
from pathlib import Path

import pytest
from tests.support.node_images import NodeImages

pytestmark = [pytest.mark.engine, pytest.mark.slow]


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


def test_an_upgrade_converges_wherever_it_is_killed(crash_matrix, plan):
    crash_matrix(plan.build, observe=plan.observe, moments=1, troubles=("killed",))
