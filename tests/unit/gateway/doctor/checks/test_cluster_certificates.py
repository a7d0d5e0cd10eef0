"""Certificates that have expired are problems; those that expire soon are warnings."""

import datetime as dt
from types import SimpleNamespace

import pytest

from holdfast.gateway.doctor.checks.cluster import check_certificates
from holdfast.gateway.doctor.facts import FactUnavailable
from holdfast.gateway.registry import GatewayFiles
from holdfast.pki import issue_bundle

DAY = dt.timedelta(days=1)


class FakeFacts:
    """Facts of a stopped gateway whose kubeconfig has this certificate."""

    def __init__(self, pem):
        self.gateway = SimpleNamespace(files=GatewayFiles("dev"))
        self.local_credentials = SimpleNamespace(certificate=pem)

    @property
    def running_container(self):
        raise FactUnavailable("the container does not run")


def findings(pem):
    found = []
    with pytest.raises(FactUnavailable):
        found.extend(check_certificates(FakeFacts(pem)))
    return found


@pytest.mark.parametrize(
    ("age", "severity", "text"),
    [
        (10 * DAY, None, ""),
        (95 * DAY, "warning", "The certificate in the kubeconfig expires on "),
        (101 * DAY, "problem", "The certificate in the kubeconfig expired on "),
        (-2 * DAY, "problem", "The certificate in the kubeconfig is not valid before "),
    ],
)
def test_certificate_validity_is_reported(age, severity, text):
    issued = dt.datetime.now(dt.UTC) - age
    bundle = issue_bundle(["localhost"], at=issued, lifetime=100 * DAY)
    chain = bundle.client.certificate + bundle.ca
    found = findings(chain)
    assert [finding.severity for finding in found] == ([severity] if severity else [])
    assert all(finding.code == "certificates-expiring" for finding in found)
    assert all(finding.cause.startswith(text) for finding in found)


def test_unreadable_certificate_is_a_problem():
    (finding,) = findings(b"rubbish")
    assert (finding.code, finding.severity) == ("certificates-expiring", "problem")
