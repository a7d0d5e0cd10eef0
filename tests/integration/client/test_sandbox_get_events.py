"""`holdfast sandbox get` and the SDK show the events of a sandbox."""

import json
from datetime import UTC, datetime, timedelta

import pytest

from holdfast.api import format_timestamp
from holdfast.kube import Objects, api_client

pytestmark = pytest.mark.apiserver


def test_get_shows_events_with_escaped_messages(source, sandboxes):
    sandboxes.create("ev", "app:1", workspace=False)
    manifest = {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"generateName": "ev."},
        "involvedObject": {"kind": "Pod", "name": "ev", "namespace": source.namespace},
        "type": "Warning",
        "reason": "Unhealthy",
        "message": "probe printed \x1b[31mred\x1b[0m\nand more",
        "count": 3,
        "lastTimestamp": format_timestamp(datetime.now(UTC) + timedelta(seconds=1)),
    }
    with api_client(source.kubeconfig) as api:
        Objects(api).ensure(manifest, namespace=source.namespace)
    (event,) = [one for one in sandboxes.sandbox("ev").get().events if one.reason == "Unhealthy"]
    assert (event.type, event.object, event.count) == ("Warning", "Pod", 3)
    shown = source.holdfast("sandbox", "get", "ev")
    (line,) = [line for line in shown.splitlines() if line.startswith("event") and "Unhealthy" in line]
    assert r"probe printed \x1b[31mred\x1b[0m\nand more" in line
    assert "\x1b" not in shown
    printed = json.loads(source.holdfast("sandbox", "get", "ev", "--json"))["events"]
    assert [one["message"] for one in printed if one["reason"] == "Unhealthy"] == [manifest["message"]]
