"""Every reason that a condition can give is in the rows that tests on a real API server have to hear."""

import pytest
from tests.support.api_rows import CLAIM_ROWS, SANDBOX_ROWS

from holdfast.sandbox.api import ClaimReason, Reason


@pytest.mark.parametrize(("reasons", "rows"), [(Reason, SANDBOX_ROWS), (ClaimReason, CLAIM_ROWS)])
def test_each_reason_is_in_a_row_and_each_row_has_a_reason(reasons, rows):
    heard = {said.split()[1] for _, _, said in rows}
    assert heard - {"DependenciesReady"} == {each.value for each in reasons} - {"DependenciesReady"}
