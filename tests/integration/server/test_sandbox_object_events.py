"""`GET /v1/sandboxes/{name}` shows the Kubernetes events of the sandbox's objects."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from holdfast.api import format_timestamp

pytestmark = [pytest.mark.apiserver, pytest.mark.timeout(180)]

ROOT = "/v1/sandboxes"


@pytest.fixture
def emit(objects, namespace):
    """Write an event as a component of the cluster does."""

    def write(kind, name, reason, seconds=0, **fields):
        seen = format_timestamp(datetime.now(UTC) + timedelta(seconds=seconds))
        manifest = {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"generateName": f"{name}."},
            "involvedObject": {"kind": kind, "name": name, "namespace": namespace},
            "reason": reason,
            "lastTimestamp": seen,
            **fields,
        }
        objects.ensure(manifest, namespace=namespace)

    return write


def test_get_shows_events_of_pod_workspace_and_sandbox(server, emit, name):
    assert server.request_json("POST", ROOT, {"name": name})[0] == 201
    emit("Pod", name, "FailedScheduling", 3, type="Warning", message="no node", count=4)
    emit("PersistentVolumeClaim", f"workspace-{name}", "Provisioning", 1, type="Normal")
    emit("Sandbox", name, "Seen", 2)
    emit("Pod", f"{name}-other", "Foreign", 2)
    status, view = server.request_json("GET", f"{ROOT}/{name}")
    assert status == 200
    assert [each["reason"] for each in view["events"]] == ["Provisioning", "Seen", "FailedScheduling"]
    last = view["events"][-1]
    shown = (last["type"], last["object"], last["message"], last["count"])
    assert shown == ("Warning", "Pod", "no node", 4)


def test_events_before_the_creation_are_not_shown(server, emit, name):
    emit("Pod", name, "Killing", -60)
    assert server.request_json("POST", ROOT, {"name": name})[0] == 201
    assert server.request_json("GET", f"{ROOT}/{name}")[1]["events"] == []


def test_list_has_no_events(server, emit, name):
    assert server.request_json("POST", ROOT, {"name": name, "labels": {"only": name}})[0] == 201
    emit("Pod", name, "Scheduled", 1)
    (view,) = server.request_json("GET", f"{ROOT}?selector=only%3D{name}")[1]["items"]
    assert view["events"] == []
