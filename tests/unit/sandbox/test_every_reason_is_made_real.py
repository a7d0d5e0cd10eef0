"""Every condition's reason of the published API is made by a test in which the situation is real."""

import re
from pathlib import Path

import pytest

from holdfast.sandbox.api import ClaimReason, Reason

TESTS = Path(__file__).parents[2]
REAL = [*(TESTS / "integration" / "controller").glob("test_*.py"), *(TESTS / "e2e").glob("test_*.py")]


@pytest.mark.parametrize("reason", [*Reason, *ClaimReason])
def test_a_test_on_a_real_server_waits_for_it(reason):
    said = re.compile(rf'"((True|False|Unknown) )?{reason.value}"')
    assert any(said.search(each.read_text()) for each in REAL)
