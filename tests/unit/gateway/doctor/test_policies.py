"""Network policies on a gateway whose network keeps to none: the doctor names them, and says so."""

import pytest

from holdfast.gateway.doctor.checks.pods import policies
from holdfast.gateway.doctor.examination import CHECKS


class Listed:
    """A case whose cluster has these network policies."""

    def __init__(self, *names):
        self.names = names

    def items(self, path):
        assert path == "/apis/networking.k8s.io/v1/networkpolicies"
        return [{"metadata": {"namespace": "default", "name": name}} for name in self.names]


def test_where_there_are_none_nothing_is_said():
    assert list(policies(Listed())) == []


@pytest.mark.parametrize(
    ("names", "subject"),
    [
        ("b", "default/b"),
        ("ba", "default/a, default/b"),
        ("fedcba", "default/a, default/b, default/c, default/d, default/e …"),
    ],
)
def test_one_note_names_them_and_says_that_nobody_keeps_to_them(names, subject):
    (found,) = policies(Listed(*names))
    assert (found.code, found.severity, found.subject) == ("network-policy-unenforced", "note", subject)
    assert "does not enforce network policies: every pod reaches every other" in found.cause
    assert "Do not rely on them" in found.repair


def test_the_doctor_asks_for_them():
    assert policies in CHECKS.values()
