"""What several matrices of gateways have in common."""

from __future__ import annotations

import pytest
from tests.support.crash_plans import load_plan


@pytest.fixture
def existing_data_plan(tmp_path):
    """`up` on existing data, with a separate home; the gateway is destroyed at the end."""
    module = load_plan("existing_data_plan")
    module.set_up(tmp_path)
    yield module
    module.clear()
