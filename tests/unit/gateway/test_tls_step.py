"""Which names the certificate is made out to, and what a judgement means for the step."""

from __future__ import annotations

import pytest

from holdfast.errors import PermanentError
from holdfast.gateway.spec import GatewaySpec
from holdfast.gateway.steps.tls import refuse_wrong_clock, server_names, shortly
from holdfast.pki import Judgement, Reason


def spec(**changes):
    return GatewaySpec(**{"name": "dev", "image": "i", "port": 1, "gateway_port": 2, **changes})


def test_the_names_are_those_of_this_machine_of_the_settings_and_of_the_cluster():
    names = server_names(spec(api_names=("gw.example.org", "localhost")), "ns")
    assert names == (
        "localhost",
        "127.0.0.1",
        "gw.example.org",
        "holdfast-api",
        "holdfast-api.ns",
        "holdfast-api.ns.svc",
        "holdfast-api.ns.svc.cluster.local",
    )


@pytest.mark.parametrize(
    ("listen", "held"), [("192.0.2.7", True), ("0.0.0.0", False), ("::", False), ("::1", True)]
)
def test_an_address_that_is_listened_on_is_a_name_unless_it_means_all(listen, held):
    assert (listen in server_names(spec(listen=listen), "ns")) is held


def test_a_certificate_from_the_future_is_an_error_about_clocks():
    judgement = Judgement((Reason("expired", "a"), Reason("from-the-future", "the CA is valid from 2040 on")))
    with pytest.raises(PermanentError, match="a clock is off: the CA is valid from 2040 on") as caught:
        refuse_wrong_clock(judgement, "ns")
    assert "clock" in caught.value.hint
    refuse_wrong_clock(Judgement((Reason("expired", "a"),)), "ns")
    refuse_wrong_clock(Judgement(), "ns")


def test_many_reasons_fit_on_one_line():
    reasons = tuple(Reason("expired", f"reason {number}") for number in range(1, 6))
    assert shortly(Judgement(reasons)) == "reason 1; reason 2; and 3 more"
    assert shortly(Judgement(reasons[:2])) == "reason 1; reason 2"
