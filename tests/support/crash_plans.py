"""Load the plan of a crash matrix: a file next to the tests, which child processes load too."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from types import ModuleType

PLAN_DIRECTORY = Path(__file__).resolve().parents[1] / "chaos" / "gateway"


def load_plan(name: str) -> ModuleType:
    """Load a plan as a new module: two tests that load it share nothing."""
    spec = importlib.util.spec_from_file_location(name, PLAN_DIRECTORY / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
