"""The check reports NetworkPolicies, because the node's network does not enforce them."""

import pytest

from holdfast.gateway.doctor.checks.cluster import check_network_policies
from holdfast.gateway.doctor.runner import CHECKS


class FakeFacts:
    """Facts of a cluster that has these NetworkPolicies."""

    def __init__(self, *names):
        self.names = names

    def list_objects(self, path):
        assert path == "/apis/networking.k8s.io/v1/networkpolicies"
        return [{"metadata": {"namespace": "default", "name": name}} for name in self.names]


def test_no_policies_give_no_note():
    assert list(check_network_policies(FakeFacts())) == []


@pytest.mark.parametrize(
    ("names", "subject"),
    [
        ("b", "default/b"),
        ("ba", "default/a, default/b"),
        ("fedcba", "default/a, default/b, default/c, default/d, default/e …"),
    ],
)
def test_one_note_names_unenforced_policies(names, subject):
    (finding,) = check_network_policies(FakeFacts(*names))
    assert (finding.code, finding.severity, finding.subject) == ("network-policy-unenforced", "note", subject)
    assert "does not enforce network policies: every pod can reach every other pod" in finding.cause
    assert "Do not rely on network policies" in finding.repair


def test_doctor_requests_policies():
    assert check_network_policies in CHECKS.values()
