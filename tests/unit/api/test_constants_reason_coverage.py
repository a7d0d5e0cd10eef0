"""Every reason that a condition can give is in the rows that tests on a real API server have to hear."""

import pytest
from tests.support.condition_coverage import CLAIM_CONDITIONS, SANDBOX_CONDITIONS

from holdfast.api.constants import SandboxClaimReason, SandboxReason

COPIED = {"DependenciesReady", "ReconcilerError"}
"""reasons of sandboxes that SandboxClaims have too"""
PASSING = {"AdoptionConflict", "SandboxCreatePending", "SandboxMissing"}
"""reasons that the next reconciliation replaces at once; unit tests cover them"""


@pytest.mark.parametrize(
    ("reasons", "rows"), [(SandboxReason, SANDBOX_CONDITIONS), (SandboxClaimReason, CLAIM_CONDITIONS)]
)
def test_reasons_and_coverage_rows_match(reasons, rows):
    heard = {said.split()[1] for _, _, said in rows}
    assert heard - COPIED == {each.value for each in reasons} - COPIED - PASSING
