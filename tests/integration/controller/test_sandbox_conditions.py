"""Sandboxes on a real control plane: every condition and reason of the published API, made real."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from tests.support.condition_coverage import SANDBOX_CONDITIONS, observed_conditions_of_file
from tests.support.controller_process import (
    condition_summary,
    running_pod_status,
    status_of,
    terminated_pod_status,
)

from holdfast.sandbox import name_hash
from holdfast.sandbox.manifests import tracking_labels

pytestmark = [pytest.mark.apiserver, pytest.mark.timeout(180)]

LABEL = "agents.x-k8s.io/sandbox-name-hash"
WORKSPACE = {
    "metadata": {"name": "workspace", "labels": {"a": "b"}},
    "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
}


@pytest.fixture(autouse=True)
def _running_controller(controller):
    return controller


def create_ready_sandbox(place, name, **options):
    """A sandbox whose pod runs."""
    place.create_sandbox(name, **options)
    place.wait("Pod", name, bool)
    place.mark_pod_running(name)
    return place.wait_conditions("Sandbox", name, Ready="True DependenciesReady")


def explanation_of(found):
    rows = status_of(found).get("conditions") or ()
    return next((row["message"] for row in rows if row["type"] == "holdfast.dev/Explanation"), "")


def seconds_from_now(seconds):
    return (datetime.now(UTC) + timedelta(seconds=seconds)).strftime("%Y-%m-%dT%H:%M:%SZ")


def test_sandbox_creates_pod_pvc_and_service(ns):
    ns.create_sandbox("whole", volumeClaimTemplates=[WORKSPACE], service=True)
    ns.wait_conditions("Sandbox", "whole", Ready="False DependenciesNotReady", Suspended="False NotSuspended")
    pod = ns.wait("Pod", "whole", bool)
    ns.mark_pod_running("whole")
    found = ns.wait_conditions(
        "Sandbox", "whole", Ready="True DependenciesReady", PodScheduled="True PodScheduled"
    )
    claim, service = ns.get("PersistentVolumeClaim", "workspace-whole"), ns.get("Service", "whole")
    for part in (pod, claim, service):
        (owner,) = part["metadata"]["ownerReferences"]
        assert (owner["uid"], owner["controller"]) == (found["metadata"]["uid"], True)
        assert part["metadata"]["labels"][LABEL] == name_hash("whole")
    assert claim["metadata"]["labels"]["a"] == "b"
    assert pod["spec"]["volumes"][0]["persistentVolumeClaim"]["claimName"] == "workspace-whole"
    status = found["status"]
    assert status["podIPs"] == ["10.9.0.1"]
    assert status["selector"] == f"{LABEL}={name_hash('whole')}"
    assert status["service"] == "whole"
    assert status["serviceFQDN"] == f"whole.{ns.namespace}.svc.cluster.local"
    assert {row["observedGeneration"] for row in status["conditions"]} == {found["metadata"]["generation"]}
    assert "finalizers" not in found["metadata"]
    assert not any("kopf" in key for key in found["metadata"].get("annotations", {}))


def test_suspend_deletes_only_pod_and_resume_uses_new_image(ns):
    create_ready_sandbox(ns, "sleepy", volumeClaimTemplates=[WORKSPACE], service=True)
    old = ns.get("Pod", "sleepy")["metadata"]["uid"]
    claim = ns.get("PersistentVolumeClaim", "workspace-sleepy")["metadata"]["uid"]
    image = {"containers": [{"name": "main", "image": "app:2"}]}
    patch = {"spec": {"operatingMode": "Suspended", "podTemplate": {"spec": image}}}
    ns.patch("Sandbox", "sleepy", patch)
    found = ns.wait_conditions(
        "Sandbox", "sleepy", Ready="False SandboxSuspended", Suspended="True PodTerminated"
    )
    assert ns.get("Pod", "sleepy") is None
    assert "podIPs" not in found["status"]
    assert "nodeName" not in found["status"]
    assert ns.get("Service", "sleepy") is not None
    ns.patch("Sandbox", "sleepy", {"spec": {"operatingMode": "Running"}})
    pod = ns.wait("Pod", "sleepy", lambda pod: pod["metadata"]["uid"] != old)
    assert pod["spec"]["containers"][0]["image"] == "app:2"
    assert ns.get("PersistentVolumeClaim", "workspace-sleepy")["metadata"]["uid"] == claim
    ns.mark_pod_running("sleepy")
    ns.wait_conditions("Sandbox", "sleepy", Ready="True DependenciesReady", Suspended="False NotSuspended")


def test_slowly_terminating_pod_is_reported(ns, control_plane):
    ns.create_sandbox("slow", pod_spec={"terminationGracePeriodSeconds": 30, "nodeName": "far"})
    ns.wait("Pod", "slow", bool)
    ns.mark_pod_running("slow")
    found = ns.wait_conditions("Sandbox", "slow", Ready="True DependenciesReady")
    assert found["status"]["nodeName"] == "far"
    ns.patch("Sandbox", "slow", {"spec": {"operatingMode": "Suspended"}})
    ns.wait_conditions("Sandbox", "slow", Ready="False SandboxSuspended", Suspended="False PodTerminating")
    # What a kubelet does when the containers have ended.
    path = f"/api/v1/namespaces/{ns.namespace}/pods/slow"
    control_plane.request("DELETE", path, {"gracePeriodSeconds": 0})
    ns.wait_conditions("Sandbox", "slow", Suspended="True PodTerminated")


def test_deleted_pod_is_recreated(ns):
    create_ready_sandbox(ns, "again")
    old = ns.get("Pod", "again")["metadata"]["uid"]
    ns.delete("Pod", "again")
    ns.wait("Pod", "again", lambda pod: pod["metadata"]["uid"] != old)
    ns.mark_pod_running("again")
    ns.wait_conditions("Sandbox", "again", Ready="True DependenciesReady")


def test_failed_pod_is_reported_and_recreated(ns):
    recreate = {"annotations": {"holdfast.dev/failed-pods": "Recreate"}}
    create_ready_sandbox(ns, "fails", metadata=recreate)
    old = ns.get("Pod", "fails")["metadata"]["uid"]
    ns.patch("Pod", "fails", {"status": terminated_pod_status("Failed", 7)}, subresource="status")
    explained = {"Ready": "False DependenciesNotReady", "holdfast.dev/Explanation": "True PodFailed"}
    found = ns.wait_conditions("Sandbox", "fails", **explained)
    assert "exited with code 7" in explanation_of(found)
    ns.wait("Pod", "fails", lambda pod: pod["metadata"]["uid"] != old)
    ns.mark_pod_running("fails")
    found = ns.wait_conditions("Sandbox", "fails", Ready="True DependenciesReady", Finished=None)
    assert found["metadata"]["annotations"]["holdfast.dev/failures"] == "1"


def test_failed_pod_is_kept_by_default(ns):
    create_ready_sandbox(ns, "kept")
    long_ago = datetime.now(UTC) - timedelta(hours=1)
    ns.patch("Pod", "kept", {"status": terminated_pod_status("Failed", 1, long_ago)}, subresource="status")
    ns.wait_conditions("Sandbox", "kept", Ready="False PodFailed", Finished="True PodFailed")
    wait_until_reconciled(ns)
    assert status_of(ns.get("Pod", "kept"))["phase"] == "Failed"


def wait_until_reconciled(place):
    """Whatever the controller had to do before this sandbox became ready, it has done."""
    name = f"marker-{datetime.now(UTC):%H%M%S%f}"
    create_ready_sandbox(place, name)
    place.delete("Sandbox", name)


def test_succeeded_pod_finishes_sandbox(ns):
    create_ready_sandbox(ns, "done")
    ns.patch("Pod", "done", {"status": terminated_pod_status("Succeeded", 0)}, subresource="status")
    ns.wait_conditions("Sandbox", "done", Ready="False PodSucceeded", Finished="True PodSucceeded")


@pytest.mark.parametrize("policy", ["Retain", "Delete"])
def test_expiry_deletes_pod_and_service_then_applies_policy(ns, policy):
    name = f"short-{policy.lower()}"
    create_ready_sandbox(
        ns,
        name,
        service=True,
        volumeClaimTemplates=[WORKSPACE],
        shutdownTime=seconds_from_now(4),
        shutdownPolicy=policy,
    )
    ns.wait_gone("Pod", name)
    ns.wait_gone("Service", name)
    if policy == "Delete":
        ns.wait_gone("Sandbox", name)
        return
    ns.wait_conditions("Sandbox", name, Ready="False SandboxExpired")
    ns.wait("Sandbox", name, lambda found: set(found["status"]) == {"conditions"})
    assert ns.get("PersistentVolumeClaim", f"workspace-{name}") is not None


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("small", "2020-01-01t00:00:00z"),
        ("offset", "2020-01-01T00:00:00+24:30"),
        ("year", "0000-01-01T00:00:00Z"),
    ],
)
def test_every_timestamp_accepted_by_server_is_parsed(ns, name, text):
    ns.create_sandbox(f"odd-{name}", shutdownTime=text)
    ns.wait_conditions("Sandbox", f"odd-{name}", Ready="False SandboxExpired")
    made = ns.create(
        "SandboxClaim", f"odd-{name}", {"warmPoolRef": {"name": "p"}, "lifecycle": {"shutdownTime": text}}
    )
    assert made["spec"]["lifecycle"]["shutdownTime"] == text
    ns.wait_conditions("SandboxClaim", f"odd-{name}", Ready="False ClaimExpired")


def test_two_owned_pods_stop_reconciliation(ns):
    found = create_ready_sandbox(ns, "twice")
    (owner,) = ns.get("Pod", "twice")["metadata"]["ownerReferences"]
    create_foreign_pod(ns, "twice-more", ownerReferences=[owner], labels=tracking_labels("twice"))
    ns.wait_conditions("Sandbox", "twice", Ready="False MultiplePods", Suspended="False NotSuspended")
    ns.patch("Sandbox", "twice", {"spec": {"operatingMode": "Suspended"}})
    ns.wait_conditions("Sandbox", "twice", Ready="False MultiplePods", Suspended="Unknown PodStateUnknown")
    ns.patch("Sandbox", "twice", {"spec": {"operatingMode": "Running"}})
    ns.delete("Pod", "twice-more")
    ns.wait_conditions("Sandbox", "twice", Ready="True DependenciesReady")
    assert found["metadata"]["uid"] == owner["uid"]


def create_foreign_pod(place, name, **metadata):
    body = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": place.namespace, **metadata},
        "spec": {"containers": [{"name": "main", "image": "x"}], "terminationGracePeriodSeconds": 0},
    }
    return place.objects.create(body)


def test_foreign_pod_with_sandbox_name_is_reported(ns):
    create_foreign_pod(ns, "taken")
    ns.create_sandbox("taken")
    found = ns.wait_conditions("Sandbox", "taken", Ready="False ReconcilerError")
    (words,) = [row["message"] for row in found["status"]["conditions"] if row["type"] == "Ready"]
    assert words.startswith('Error seen: cannot adopt unowned pod "taken": missing required pool')
    assert ns.get("Pod", "taken")["metadata"].get("ownerReferences") is None
    ns.patch("Sandbox", "taken", {"spec": {"operatingMode": "Suspended"}})
    ns.wait_conditions("Sandbox", "taken", Suspended="False PodNotOwned")
    assert ns.get("Pod", "taken") is not None
    ns.patch("Sandbox", "taken", {"spec": {"operatingMode": "Running"}})
    ns.delete("Pod", "taken")
    ns.wait("Pod", "taken", lambda found: found["metadata"].get("ownerReferences"))


def test_adoptable_pod_is_adopted(ns):
    made = create_foreign_pod(ns, "orphan", labels={"agents.x-k8s.io/adoptable": "true"})
    box = ns.create_sandbox("orphan")
    found = ns.wait("Pod", "orphan", lambda found: found["metadata"].get("ownerReferences"))
    assert found["metadata"]["uid"] == made["metadata"]["uid"]
    assert found["metadata"]["ownerReferences"][0]["uid"] == box["metadata"]["uid"]
    assert found["metadata"]["labels"][LABEL] == name_hash("orphan")


def test_template_labels_propagate_without_replacing_pod(ns):
    create_ready_sandbox(ns, "labels")
    before = ns.get("Pod", "labels")
    metadata = {"labels": {"team": "blue"}, "annotations": {"note": "x"}}
    ns.patch("Sandbox", "labels", {"spec": {"podTemplate": {"metadata": metadata}}})
    ns.wait("Pod", "labels", lambda found: found["metadata"]["labels"].get("team") == "blue")
    ns.patch("Sandbox", "labels", {"spec": {"podTemplate": {"metadata": {"labels": {"team": None}}}}})
    after = ns.wait("Pod", "labels", lambda found: "team" not in found["metadata"]["labels"])
    assert after["metadata"]["uid"] == before["metadata"]["uid"]
    assert after["metadata"]["annotations"]["note"] == "x"
    assert after["spec"] == before["spec"]


def test_pod_rejected_by_server_is_reported(ns):
    ns.create_sandbox("bad", pod_spec={"containers": [{"name": "main", "image": "app:1", "volumeMounts": [
        {"name": "nowhere", "mountPath": "/x"}]}]})  # fmt: skip
    found = ns.wait_conditions("Sandbox", "bad", Ready="False InvalidConfiguration")
    (words,) = [row["message"] for row in found["status"]["conditions"] if row["type"] == "Ready"]
    assert "nowhere" in words


def test_missing_image_is_reported_while_pod_waits(ns):
    ns.create_sandbox("noimage")
    ns.wait("Pod", "noimage", bool)
    status = running_pod_status()
    status["phase"] = "Pending"
    del status["podIP"], status["podIPs"]
    status["conditions"] = [row for row in status["conditions"] if row["type"] == "PodScheduled"]
    waiting = {"waiting": {"reason": "ErrImagePull", "message": "app:1: not found"}}
    status["containerStatuses"][0] |= {"ready": False, "state": waiting}
    ns.patch("Pod", "noimage", {"status": status}, subresource="status")

    def told(found):
        return "ErrImagePull: app:1: not found" in explanation_of(found)

    found = ns.wait("Sandbox", "noimage", told)
    assert condition_summary(found, "Ready") == "False DependenciesNotReady"


def test_unschedulable_pod_is_reported(ns):
    ns.create_sandbox("nowhere")
    # No scheduler runs here, so the pod has no PodScheduled condition yet.
    ns.wait_conditions("Sandbox", "nowhere", PodScheduled="Unknown PodSchedulingUnknown")
    words = "0/1 nodes are available: 1 Insufficient cpu."
    row = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": words}
    ns.patch("Pod", "nowhere", {"status": {"conditions": [row]}}, subresource="status")
    found = ns.wait_conditions(
        "Sandbox", "nowhere", PodScheduled="False Unschedulable", Ready="False DependenciesNotReady"
    )
    assert any("Insufficient cpu" in row["message"] for row in found["status"]["conditions"])


def test_service_false_deletes_service_and_unset_keeps_it(ns):
    create_ready_sandbox(ns, "served", service=True)
    ns.wait("Service", "served", bool)
    ns.patch("Sandbox", "served", {"spec": {"service": None}})
    wait_until_reconciled(ns)
    assert ns.get("Service", "served") is not None
    ns.patch("Sandbox", "served", {"spec": {"service": False}})
    ns.wait_gone("Service", "served")
    ns.wait("Sandbox", "served", lambda found: "service" not in found["status"])


def test_deleted_sandbox_leaves_no_objects(ns):
    create_ready_sandbox(ns, "gone", service=True, volumeClaimTemplates=[WORKSPACE])
    ns.delete("Sandbox", "gone")
    for kind, name in (("Pod", "gone"), ("Service", "gone"), ("PersistentVolumeClaim", "workspace-gone")):
        ns.wait_gone(kind, name)


def test_idle_sandbox_is_suspended_and_resumed_on_request(ns):
    used = {"holdfast.dev/idle-suspend-after": "2", "holdfast.dev/last-used": seconds_from_now(0)}
    create_ready_sandbox(ns, "idle", metadata={"annotations": used})
    ns.wait_conditions("Sandbox", "idle", Ready="False SandboxSuspended", Suspended="True PodTerminated")
    patch = {
        "spec": {"operatingMode": "Running"},
        "metadata": {"annotations": {"holdfast.dev/last-used": seconds_from_now(60)}},
    }
    ns.patch("Sandbox", "idle", patch)
    ns.wait("Pod", "idle", bool)
    ns.mark_pod_running("idle")
    ns.wait_conditions("Sandbox", "idle", Ready="True DependenciesReady")


def test_every_sandbox_condition_was_observed(ns, request):
    assert SANDBOX_CONDITIONS - observed_conditions_of_file(ns, request) == set()
