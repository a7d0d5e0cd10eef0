"""A missing container or volume is a problem for every gateway that this machine knows."""

import pytest

from holdfast.gateway.doctor.checks.gateway_container import check_container, check_volume
from holdfast.gateway.doctor.facts import GatewayFacts
from holdfast.gateway.registry import GatewayFiles, GatewayMetadata, write_metadata


@pytest.mark.parametrize("content", [None, b"{", b"\xff"])
def test_gateway_with_unreadable_metadata_is_known(content):
    path = GatewayFiles("dev").metadata
    if content is not None:
        path.parent.mkdir(parents=True)
        path.write_bytes(content)
    codes = [finding.code for finding in check_volume(facts_of_nothing())]
    assert codes == (["volume-missing"] if content else [])


@pytest.mark.parametrize(
    ("is_recorded", "found"),
    [(True, ("container-missing", "command")), (False, ("gateway-unknown", "person"))],
)
def test_only_a_person_can_repair_an_unknown_gateway(is_recorded, found):
    if is_recorded:
        write_metadata(GatewayMetadata(name="dev", image="i", port=1))
    (finding,) = check_container(facts_of_nothing())
    assert (finding.code, finding.fixed_by) == found


def facts_of_nothing():
    """The facts of a gateway that has no objects on the container engine."""
    facts = GatewayFacts("dev")
    facts.compute_once("connected_engine", object)
    for kind in ("container", "parked_container", "volume"):
        facts.compute_once(kind, lambda: None)
    return facts
