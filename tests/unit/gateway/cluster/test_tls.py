"""Which names the certificate is made out to, and what a judgement means for the step."""

from __future__ import annotations

import pytest

from holdfast.errors import PermanentError
from holdfast.gateway.cluster.tls import check_certificate_times, server_names, summarize_reasons
from holdfast.gateway.spec import GatewaySpec
from holdfast.pki import CertificateProblem, ValidationResult


def spec(**changes):
    return GatewaySpec(**{"name": "dev", "image": "i", "port": 1, "gateway_port": 2, **changes})


def test_names_come_from_host_settings_and_cluster():
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
def test_listen_address_is_a_name_unless_wildcard(listen, held):
    assert (listen in server_names(spec(listen=listen), "ns")) is held


def test_future_certificate_is_a_clock_error():
    judgement = ValidationResult(
        (
            CertificateProblem("expired", "a"),
            CertificateProblem("from-the-future", "the CA is valid from 2040 on"),
        )
    )
    with pytest.raises(PermanentError, match="clock skew: the CA is valid from 2040 on") as caught:
        check_certificate_times(judgement, "ns")
    assert "clock" in caught.value.hint
    check_certificate_times(ValidationResult((CertificateProblem("expired", "a"),)), "ns")
    check_certificate_times(ValidationResult(), "ns")


def test_many_reasons_fit_on_one_line():
    reasons = tuple(CertificateProblem("expired", f"reason {number}") for number in range(1, 6))
    assert summarize_reasons(ValidationResult(reasons)) == "reason 1; reason 2; and 3 more"
    assert summarize_reasons(ValidationResult(reasons[:2])) == "reason 1; reason 2"
