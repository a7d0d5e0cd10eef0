"""`up` killed before, inside and after every step, on the real engine: run again, it ends as it should."""

import importlib.util
from pathlib import Path

import pytest

pytestmark = pytest.mark.engine


def load(name):
    spec = importlib.util.spec_from_file_location(name, Path(__file__).with_name(f"{name}.py"))
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def plan():
    """The plan under test; gateways that a case left behind are taken away in the end."""
    module = load("up_plan")
    yield module
    module.clear()


@pytest.mark.parametrize("moments", [1, pytest.param(3, marks=pytest.mark.slow)])
def test_up_converges_wherever_it_is_killed(crash_matrix, plan, moments):
    crash_matrix(plan.build, observe=plan.observe, moments=moments, troubles=("killed",))
