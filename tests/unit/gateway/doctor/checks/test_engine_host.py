"""Disk space, clocks and foreign objects, from what the engine and the node return."""

import json
import time
from email.utils import formatdate
from types import SimpleNamespace

import pytest

from holdfast.containers import GATEWAY
from holdfast.gateway.doctor.checks import engine_host
from holdfast.gateway.doctor.facts import FactUnavailable, GatewayFacts
from holdfast.kube import HttpsResponse

DF = (
    "Filesystem 1024-blocks Used Available Capacity Mounted on\n"
    "/dev/sda1 1000000 {used} {free} 50% /var/lib/holdfast\n"
)


class FakeFacts:
    """Facts of a running gateway; the clocks of engine and API server are ahead by these seconds."""

    name = "dev"
    engine = credentials = None

    def __init__(self, output="", engine_ahead=0.0, api_ahead=0.0):
        contract = SimpleNamespace(state_path="/var/lib/holdfast")
        self.gateway = SimpleNamespace(contract=contract, object_name="holdfast-dev")
        self.output, self.api_ahead = output, api_ahead
        at = time.gmtime(time.time() + engine_ahead)
        self.engine_info = {"SystemTime": time.strftime("%Y-%m-%dT%H:%M:%SZ", at)}

    def run_in_node(self, *argv):
        assert argv == ("df", "-Pk", "/var/lib/holdfast")
        return self.output

    def api_get(self, path):
        if self.api_ahead is None:
            raise FactUnavailable("the container does not run")
        return HttpsResponse(b"ok", formatdate(time.time() + self.api_ahead, usegmt=True))


@pytest.mark.parametrize(
    ("free", "severities"), [(500_000, []), (100_000, ["warning"]), (10_000, ["problem"])]
)
def test_low_disk_space_of_the_volume_is_reported(free, severities):
    found = list(engine_host.check_disk(FakeFacts(DF.format(used=1_000_000 - free, free=free))))
    assert [finding.severity for finding in found] == severities
    assert all(finding.subject == "volume holdfast-dev" for finding in found)


@pytest.mark.parametrize(
    ("engine_ahead", "api_ahead", "expected"),
    [
        (0, 0, []),
        (60, 0, [("the engine's host", "warning")]),
        (-400, None, [("the engine's host", "problem")]),
        (0, -60, [("the API server", "warning")]),
    ],
)
def test_clock_skew_is_reported(engine_ahead, api_ahead, expected):
    found = list(engine_host.check_clocks(FakeFacts("", engine_ahead, api_ahead)))
    assert [(finding.subject, finding.severity) for finding in found] == expected


def test_objects_of_other_programs_are_reported():
    facts = GatewayFacts("dev")
    labels = {"container": {GATEWAY: "other"}, "network": None, "volume": {}}
    for kind, value in labels.items():
        view = None if value is None else SimpleNamespace(labels=value)
        facts.compute_once(kind, lambda view=view: view)
    found = list(engine_host.check_foreign_objects(facts))
    assert [finding.subject for finding in found] == ["container holdfast-dev", "volume holdfast-dev"]
    with pytest.raises(FactUnavailable, match="did not create the container"):
        _ = facts.container
    assert facts.network is None


def test_objects_are_listed_page_by_page(monkeypatch):
    pages = {
        "/readyz": b"ok",
        "/api/v1/pods?limit=100&continue=": json.dumps({"metadata": {"continue": "x/"}, "items": [{"a": 1}]}),
        "/api/v1/pods?limit=100&continue=x%2F": json.dumps({"metadata": {}, "items": None}),
    }
    facts = GatewayFacts("dev")
    monkeypatch.setattr(facts, "api_get", lambda path: HttpsResponse(pages[path], ""))
    assert facts.list_objects("/api/v1/pods") == [{"a": 1}]
