"""A missing volume is a problem for every gateway that this machine knows, even with corrupt metadata."""

import pytest

from holdfast.gateway.doctor.checks.gateway_container import check_volume
from holdfast.gateway.doctor.facts import GatewayFacts
from holdfast.gateway.registry import GatewayFiles


@pytest.mark.parametrize("content", [None, b"{", b"\xff"])
def test_gateway_with_unreadable_metadata_is_known(content):
    path = GatewayFiles("dev").metadata
    if content is not None:
        path.parent.mkdir(parents=True)
        path.write_bytes(content)
    facts = GatewayFacts("dev")
    facts.compute_once("connected_engine", object)
    facts.compute_once("container", lambda: None)
    facts.compute_once("volume", lambda: None)
    codes = [finding.code for finding in check_volume(facts)]
    assert codes == (["volume-missing"] if content else [])
